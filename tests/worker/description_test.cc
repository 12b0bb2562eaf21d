#include "worker/description.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Products by matrices that stay FP8 give other bits than those by the bfloat16 that other devices make of them.
TEST(DescriptionTest, TheNumericsFingerprintSaysHowMatricesAreMultiplied) {
  const auto backend = MakeCpuBackend(1);
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .type = KvType::kFloat32};
  Model model;
  const auto fingerprint = [&] {
    return MakeDescription("name", model, *backend, layout, WorkerLimits{}).numerics_fingerprint();
  };
  const std::string plain = fingerprint();
  EXPECT_THAT(plain, HasSubstr(backend->NumericsFingerprint() + "/kv-"));
  model.weights.rounding.layers = Quantization::kFp8;
  EXPECT_THAT(fingerprint(), HasSubstr(backend->NumericsFingerprint() + "/fp8 1/kv-"));
}

}  // namespace
}  // namespace quire
