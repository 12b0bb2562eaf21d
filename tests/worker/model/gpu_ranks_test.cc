// SPDX-License-Identifier: Apache-2.0

// Models on several ranks whose devices are emulated GPUs. The ranks are threads.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/local_group.h"
#include "tests/worker/model/golden_model.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/wide_model.h"
#include "worker/model/model.h"

namespace quire {
namespace {

// A GPU of a rank, and what tests ask about it.
struct Gpu {
  explicit Gpu(DataType element, bool exact = false, int num_ranks = 1) {
    auto made = std::make_unique<cuda::EmulatedDevice>();
    device = made.get();
    backend = std::make_unique<cuda::CudaBackend>(
        std::move(made), cuda::CudaBackendOptions{.element = element, .exact = exact, .num_ranks = num_ranks});
  }

  cuda::EmulatedDevice* device;
  std::unique_ptr<Backend> backend;
};

// Runs body(rank, group) in a thread of each rank.
template <typename Body>
void ForRanks(int size, const Body& body) {
  LocalGroup group(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { body(rank, group.collective(rank)); });
  for (std::thread& thread : threads) thread.join();
}

// As in gpu_golden_test.cc.
constexpr float kGoldenTolerance = 0.015f;

class GpuRanksGoldenTest : public testing::TestWithParam<const char*> {};

// The models are small, so the ranks have rows of the last matrices. Steps of one token are recorded and replayed.
TEST_P(GpuRanksGoldenTest, TwoRanksComputeWhatTransformersComputes) {
  std::vector<std::vector<Logits>> logits(2);
  ForRanks(2, [&](int rank, Collective* group) {
    const Gpu gpu(DataType::kFloat16);
    const Golden golden = LoadGolden(absl::StrCat("gpu/", GetParam()), gpu.backend.get(), {}, rank, 2);
    PagedRunner runner(golden.model.get(), gpu.backend.get(), {.kv_type = KvType::kFloat16}, group);
    logits[rank] = runner.Prefill(0, golden.prompts[0], 16);
    EXPECT_LT(LargestError(logits[rank], golden.logits[0]), kGoldenTolerance);
    const int count = static_cast<int>(golden.greedy[0].size());
    EXPECT_EQ(runner.Greedy(0, logits[rank].back(), count), golden.greedy[0]);
    EXPECT_GT(gpu.device->num_replays(), 0);
  });
  EXPECT_EQ(logits[0], logits[1]);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuRanksGoldenTest, testing::Values("qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

// Runs a prompt in chunks, and then steps of two sequences, of which the later ones are replayed.
std::vector<Logits> RunRank(const std::string& path, const WeightRounding& rounding, bool exact, int rank, int size,
                            Collective* group) {
  const Gpu gpu(DataType::kFloat16, exact, size);
  const auto model = LoadModel(path, gpu.backend.get(), /*progress=*/nullptr, rounding, /*is_long=*/false, rank, size);
  EXPECT_TRUE(model.ok()) << model.status();
  PagedRunner runner(model->get(), gpu.backend.get(), {.kv_type = KvType::kFloat16}, group);
  Tokens prompt;
  for (int i = 0; i < 11; ++i) prompt.push_back((i * 37 + 11) % (*model)->config.vocab_size);
  std::vector<Logits> logits = runner.Prefill(0, prompt, 8);
  runner.Fork(0, 1);
  for (int i = 0; i < 3; ++i) {
    for (Logits& row : runner.Run({{0, {7 * i + 1}}, {1, {5 * i + 2}}})) logits.push_back(std::move(row));
  }
  EXPECT_GT(gpu.device->num_replays(), 0);
  return logits;
}

struct WideCase {
  std::string name;
  int size;
  WeightRounding rounding = {};
  bool exact = false;
};

class GpuRanksWideTest : public testing::TestWithParam<WideCase> {};

TEST_P(GpuRanksWideTest, RanksComputeWhatOneComputesUpToRounding) {
  const WideCase& c = GetParam();
  const TestDirectory directory;
  WriteWideModel("gpu/" + c.name, 2048, directory);
  const std::vector<Logits> expected = RunRank(directory.path(), c.rounding, c.exact, 0, 1, nullptr);
  std::vector<std::vector<Logits>> ranks(c.size);
  ForRanks(c.size, [&](int rank, Collective* group) {
    ranks[rank] = RunRank(directory.path(), c.rounding, c.exact, rank, c.size, group);
  });
  EXPECT_LT(LargestError(ranks[0], expected), kGoldenTolerance);
  for (const std::vector<Logits>& logits : ranks) EXPECT_EQ(logits, ranks[0]) << "each logit is computed once";
}

INSTANTIATE_TEST_SUITE_P(
    , GpuRanksWideTest,
    testing::Values(WideCase{"qwen2", 2}, WideCase{"qwen2", 4}, WideCase{"gemma2", 2}, WideCase{"cohere", 4},
                    WideCase{"granite", 2}, WideCase{"qwen2", 2, {.layers = Quantization::kInt8, .output = true}},
                    WideCase{"qwen2", 4, {.layers = Quantization::kInt4}}, WideCase{"qwen2", 2, {}, /*exact=*/true},
                    WideCase{"qwen2", 4, {}, /*exact=*/true}),
    [](const auto& info) { return absl::StrCat(info.param.name, "_", info.param.size, "_", info.index); });

}  // namespace
}  // namespace quire
