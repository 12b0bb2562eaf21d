// SPDX-License-Identifier: Apache-2.0

#include "worker/description.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Products by matrices that stay FP8 give other bits than products by bfloat16, which other devices make of them.
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
  model.weights.rounding = {.layers = Quantization::kInt4, .int4_inputs = Int4Inputs::kBFloat16};
  EXPECT_THAT(fingerprint(), HasSubstr(backend->NumericsFingerprint() + "/int4-bfloat16 1/kv-"));
  model.config.quantization.blocks.types = {"Q4_K"};
  model.weights.rounding = {.keeps_blocks = true};
  EXPECT_THAT(fingerprint(), HasSubstr(backend->NumericsFingerprint() + "/blocks 1/kv-"));
  model.weights.rounding.keeps_blocks = false;
  EXPECT_EQ(fingerprint(), plain);
}

TEST(DescriptionTest, ARankTellsItsPlaceAndWhereTheRanksOfOtherHostsAre) {
  const auto backend = MakeCpuBackend(1);
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .type = KvType::kFloat32};
  RankPlace place{.group_id = "g", .rank = 1, .size = 2};
  const auto described = [&] {
    return MakeDescription("name", Model(), *backend, layout, WorkerLimits{}, &place).place();
  };
  EXPECT_EQ(described().group_id(), "g");
  EXPECT_EQ(described().rank(), 1u);
  EXPECT_EQ(described().size(), 2u);
  EXPECT_EQ(described().addresses_size(), 0);
  place.addresses = {"a:1", "b:1"};
  EXPECT_THAT(described().addresses(), testing::ElementsAre("a:1", "b:1"));
}

// A manager that does not know groups would leave them out, so it must refuse the version.
TEST(DescriptionTest, CacheGroupsAreToldWithAnotherVersion) {
  const auto backend = MakeCpuBackend(1);
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .type = KvType::kFloat32};
  WorkerLimits limits{};
  limits.block_size = 16;
  const auto describe = [&] { return MakeDescription("name", Model(), *backend, layout, limits); };
  EXPECT_EQ(describe().protocol_version(), 1u);
  EXPECT_EQ(describe().groups_size(), 0);
  const std::string fingerprint = describe().numerics_fingerprint();
  limits.groups = {{.window_tokens = 8}};
  EXPECT_EQ(describe().protocol_version(), 2u);
  EXPECT_EQ(describe().groups_size(), 1);
  limits.groups = {{}, {.window_tokens = 128, .blocks_per_sheet = 6}};
  const v1::DescribeResponse description = describe();
  EXPECT_EQ(description.protocol_version(), 2u);
  EXPECT_EQ(description.numerics_fingerprint(), fingerprint);
  ASSERT_EQ(description.groups_size(), 2);
  EXPECT_EQ(description.groups(0).name(), "full");
  EXPECT_EQ(description.groups(0).retention(), v1::CACHE_RETENTION_ALL);
  EXPECT_EQ(description.groups(0).blocks_per_sheet(), 1u);
  EXPECT_EQ(description.groups(0).window_tokens(), 0u);
  EXPECT_EQ(description.groups(1).name(), "window 128");
  EXPECT_EQ(description.groups(1).retention(), v1::CACHE_RETENTION_WINDOW);
  EXPECT_EQ(description.groups(1).blocks_per_sheet(), 6u);
  EXPECT_EQ(description.groups(1).window_tokens(), 128u);
  EXPECT_EQ(description.groups(1).tokens_per_sheet(), 16u);
}

// A GPU keeps the inputs of products by matrices of 4 bits, and those by int8 if it is told to, so these are other
// numerics.
TEST(DescriptionTest, TheNumericsFingerprintSaysWhichInputsKeepTheir16Bits) {
  const cuda::CudaBackend backend(std::make_unique<cuda::EmulatedDevice>(), {});
  const cuda::CudaBackend keeping(std::make_unique<cuda::EmulatedDevice>(), {.rounds_int8_inputs = false});
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .type = KvType::kBFloat16};
  Model model;
  for (const Int4Inputs inputs : {Int4Inputs::kInt8, Int4Inputs::kBFloat16, Int4Inputs::kFloat32}) {
    model.weights.rounding = {.layers = Quantization::kInt4, .output = true, .int4_inputs = inputs};
    EXPECT_THAT(MakeDescription("name", model, backend, layout, WorkerLimits{}).numerics_fingerprint(),
                HasSubstr("/int4-a16 1/output-int8 1/kv-"));
    EXPECT_THAT(MakeDescription("name", model, keeping, layout, WorkerLimits{}).numerics_fingerprint(),
                HasSubstr("/int4-a16 1/output-int8-a16 1/kv-"));
  }
}

// Only kernels for compute capability 9.0 round inputs to FP8, and only where each row of the weights has one scale.
TEST(DescriptionTest, TheNumericsFingerprintSaysWhetherInputsBecomeFp8) {
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .type = KvType::kBFloat16};
  const auto fingerprint = [&](bool is_sm90, const cuda::CudaBackendOptions& options, const Fp8Block& block) {
    const cuda::CudaBackend backend(std::make_unique<cuda::EmulatedDevice>(is_sm90), options);
    Model model;
    model.weights.rounding.layers = Quantization::kFp8;
    model.config.quantization.fp8_block = block;
    return MakeDescription("name", model, backend, layout, WorkerLimits{}).numerics_fingerprint();
  };
  const Fp8Block rows = {}, blocks = {.rows = 128, .cols = 128}, small_blocks = {.rows = 64, .cols = 128};
  EXPECT_THAT(fingerprint(true, {}, rows), HasSubstr("/fp8 1/kv-"));
  EXPECT_THAT(fingerprint(true, {}, blocks), HasSubstr("/fp8 1/kv-"));
  EXPECT_THAT(fingerprint(true, {}, small_blocks), HasSubstr("/fp8-a16 1/kv-"));
  EXPECT_THAT(fingerprint(true, {.rounds_fp8_inputs = false}, blocks), HasSubstr("/fp8-a16 1/kv-"));
  EXPECT_THAT(fingerprint(false, {}, rows), HasSubstr("/fp8-a16 1/kv-"));
  EXPECT_THAT(fingerprint(true, {.exact = true}, rows), HasSubstr("/fp8-a16 1/kv-"));
  EXPECT_THAT(fingerprint(true, {.rounds_fp8_inputs = false}, rows), HasSubstr("/fp8-a16 1/kv-"));
}

}  // namespace
}  // namespace quire
