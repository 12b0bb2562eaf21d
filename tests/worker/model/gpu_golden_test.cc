// SPDX-License-Identifier: Apache-2.0

// Compares models of each family on the GPU backend, on the emulated device, with what Hugging Face transformers
// computes. The weights are float16, and the texts are such that the rounding of activations changes no choice.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/worker/model/golden_model.h"
#include "tests/worker/model/paged_runner.h"

namespace quire {
namespace {

// Activations, K and V are rounded to 11 bits about 10 times in each of two layers. The largest measured error is 0.01.
constexpr float kGoldenTolerance = 0.015f;

class GpuGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  GpuGoldenTest()
      : backend_(std::make_unique<cuda::CudaBackend>(std::make_unique<cuda::EmulatedDevice>(),
                                                     cuda::CudaBackendOptions{.element = DataType::kFloat16})),
        golden_(LoadGolden(absl::StrCat("gpu/", GetParam()), backend_.get())) {}

  PagedRunner Runner() { return {golden_.model.get(), backend_.get(), {.kv_type = KvType::kFloat16}}; }

  const std::unique_ptr<Backend> backend_;
  const Golden golden_;
};

TEST_P(GpuGoldenTest, LogitsAreThoseOfTransformersUpToRounding) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const std::vector<Logits> logits = runner.Prefill(static_cast<int>(prompt), golden_.prompts[prompt], 16);
    EXPECT_LT(LargestError(logits, golden_.logits[prompt]), kGoldenTolerance) << "prompt " << prompt;
  }
}

// The steps of one token are recorded and replayed.
TEST_P(GpuGoldenTest, GreedyTextIsThatOfTransformers) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const int sequence = static_cast<int>(prompt), count = static_cast<int>(golden_.greedy[prompt].size());
    const Logits last = runner.Prefill(sequence, golden_.prompts[prompt], 64).back();
    EXPECT_EQ(runner.Greedy(sequence, last, count), golden_.greedy[prompt]) << "prompt " << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GpuGoldenTest,
                         testing::Values("llama3", "mistral", "qwen2", "qwen3", "smollm3", "seed_oss", "ministral",
                                         "helium", "ernie4_5", "olmo2", "olmo3", "exaone4", "granite", "gemma",
                                         "gemma2", "gemma3", "phi3", "glm", "glm4", "ministral3", "apertus", "arcee",
                                         "hunyuan", "cohere", "cohere2", "qwen3_moe", "qwen2_moe", "mixtral", "olmoe",
                                         "granitemoe", "glm4_moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire
