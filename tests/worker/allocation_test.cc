// SPDX-License-Identifier: Apache-2.0

// A decode step allocates heap memory only for arrays that grow with its sequences. All other memory was allocated when
// the worker started or in earlier steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"

namespace {

std::atomic<int64_t> num_allocations = 0;

void* Allocate(size_t bytes, size_t alignment) {
  ++num_allocations;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The functions are not inlined, because GCC would warn of a mismatch when it sees only one of the two.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return Allocate(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace quire {
namespace {

constexpr int kSequences = 8;
constexpr int kPromptTokens = 40;
constexpr int kSteps = 120;

v1::RowSampling SamplingOf(int row) {
  v1::RowSampling sampling = Greedy();
  if (row % 4 == 0) return sampling;
  sampling.set_temperature(0.9f);
  sampling.set_seed(row);
  if (row % 4 == 1) sampling.set_top_p(0.9f);
  if (row % 4 == 2) sampling.set_top_k(20);
  if (row % 4 == 3) sampling.set_repetition_penalty(1.1f);
  return sampling;
}

// Makes the plan of step `step`. The first step has the prompts and the whole block tables; later steps have one token
// per sequence.
v1::StepPlan PlanOf(int step) {
  PlanBuilder plan(step);
  for (int row = 0; row < kSequences; ++row) {
    if (step == 1) {
      plan.Start(row, Tokens(row, kPromptTokens), SamplingOf(row));
      plan.Slice(row, 0, kPromptTokens, true, Blocks(row * 12, 12));
    } else {
      plan.Slice(row, kPromptTokens + step - 2, 1, true);
    }
  }
  return plan.plan();
}

TEST(AllocationTest, DecodeStepsAllocateOnlyWhatGrows) {
  TestWorker worker({.block_size = 16,
                     .num_blocks = 12 * kSequences,
                     .max_sequences = kSequences,
                     .max_tokens_per_step = kSequences * kPromptTokens});
  v1::StepResult result;
  std::vector<int64_t> allocations;
  for (int step = 1; step <= kSteps; ++step) {
    const v1::StepPlan plan = PlanOf(step);
    result.Clear();
    const int64_t before = num_allocations;
    ASSERT_TRUE(worker.executor().Run(plan, &result).ok());
    allocations.push_back(num_allocations - before);
  }
  EXPECT_GT(allocations[0], 0) << "the count does not see what is allocated";
  // The tokens of a sequence, and the counts of its different tokens, double their memory from time to time.
  const int num_allocating =
      static_cast<int>(std::count_if(allocations.begin() + 20, allocations.end(), [](int64_t n) { return n > 0; }));
  EXPECT_LE(num_allocating, 10);
}

}  // namespace
}  // namespace quire
