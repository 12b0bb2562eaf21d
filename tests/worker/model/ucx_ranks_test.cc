// SPDX-License-Identifier: Apache-2.0

// The ranks of a model as processes.

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/ucx_processes.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/wide_model.h"
#include "worker/model/model.h"

namespace quire {
namespace {

constexpr size_t kMaxLogits = 1 << 20;  // Of one process.

// Runs a prompt. Returns the number of logits, which it writes to `to`, or 0 when something is wrong.
size_t RunModel(const std::string& path, int rank, int size, Collective* group, float* to) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const auto model = LoadModel(path, backend.get(), /*progress=*/nullptr, {}, /*is_long=*/false, rank, size);
  if (!model.ok()) return 0;
  Tokens prompt;
  for (int i = 0; i < 70; ++i) prompt.push_back((i * 37 + 11) % (*model)->config.vocab_size);
  PagedRunner runner(model->get(), backend.get(), {}, group);
  size_t count = 0;
  for (const Logits& logits : runner.Prefill(0, prompt, 32)) {
    std::memcpy(to + count, logits.data(), logits.size() * sizeof(float));
    count += logits.size();
  }
  return count;
}

TEST(UcxRanksTest, ProcessesHaveTheBitsOfOneRank) {
  const TestDirectory directory;
  WriteWideModel("qwen2", 2048, directory);
  const size_t bytes = kMaxLogits * sizeof(float);
  void* const shared = mmap(nullptr, 5 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  float* const one = static_cast<float*>(shared);
  const auto logits_of = [&](int rank) { return one + (1 + rank) * kMaxLogits; };
  const size_t count = RunModel(directory.path(), 0, 1, nullptr, one);
  ASSERT_GT(count, 0u);
  for (const int size : {2, 4}) {
    ucx::Board* const board = ucx::NewBoard();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(ucx::Start([&] {
        const auto group = ucx::Join(GroupTransport(), board, 0, rank, size);
        if (group == nullptr) return 1;
        return RunModel(directory.path(), rank, size, group.get(), logits_of(rank)) == count ? 0 : 2;
      }));
    }
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(ucx::StatusOf(ranks[rank]), 0) << "rank " << rank;
      EXPECT_EQ(std::memcmp(logits_of(rank), one, count * sizeof(float)), 0)
          << "rank " << rank << " of " << size << ", " << count << " logits";
    }
    ucx::FreeBoard(board);
  }
  munmap(shared, 5 * bytes);
}

}  // namespace
}  // namespace quire
