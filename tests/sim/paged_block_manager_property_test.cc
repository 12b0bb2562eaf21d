// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kv_manager/blocks/paged_block_manager.h"
#include "tests/random.h"

namespace quire {
namespace {

// Forks, appends and frees at random. Slots hold the hash of the token prefix for which they were stored. Steps run in
// order, some time after they were planned. Each run checks that every sequence of its plan finds its own prefix.
class ForkSim {
 public:
  explicit ForkSim(uint64_t seed)
      : random_(seed),
        block_size_(random_.Between(1, 6)),
        blocks_(random_.Between(4, 40), block_size_),
        slots_(static_cast<size_t>(blocks_.num_blocks()) * block_size_, 0) {}

  void Run() {
    for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
      PlanStep();
      if (random_.OneIn(30)) Abandon();
      while (steps_.size() > 2 || (!steps_.empty() && random_.OneIn(3))) ExecuteStep();
    }
    while (!steps_.empty()) ExecuteStep();
    while (!sequences_.empty()) Free(sequences_.begin()->first);
    EXPECT_EQ(blocks_.CheckIntegrity(), absl::OkStatus());
    EXPECT_EQ(blocks_.counts().used, 0);
  }

  int num_copies() const { return num_copies_; }

 private:
  using Prefix = std::vector<uint64_t>;  // Hash of tokens [0, i] at position i.
  using Slots = std::vector<std::pair<int64_t, uint64_t>>;

  struct Step {
    StepId id;
    std::vector<BlockCopy> copies;
    Slots writes;
    Slots reads;
  };

  void PlanStep() {
    Step step;
    step.id = next_step_;
    next_step_ = StepId{Value(next_step_) + 1};
    blocks_.BeginStep(step.id);
    if (sequences_.empty() || random_.OneIn(4)) sequences_[NewId()];
    for (int i = random_.Between(0, 3); i > 0; --i) Fork(AnyId());
    if (random_.OneIn(4)) Free(AnyId());
    std::set<SequenceId> written;
    for (int i = random_.Between(1, 6); i > 0 && !sequences_.empty(); --i) {
      const SequenceId sequence = AnyId();
      if (written.insert(sequence).second) Append(sequence, &step);
    }
    if (random_.OneIn(4) && !sequences_.empty()) Free(AnyId());  // The stores of a freed sequence are still executed.
    for (const auto& [sequence, prefix] : sequences_) AddSlots(sequence, 0, &step.reads);
    num_copies_ += static_cast<int>(step.copies.size());
    steps_.push_back(std::move(step));
    ASSERT_EQ(blocks_.CheckIntegrity(), absl::OkStatus());
  }

  void Append(SequenceId sequence, Step* step) {
    Prefix& prefix = sequences_[sequence];
    const int first = static_cast<int>(prefix.size());
    const int end = first + random_.Between(1, 2 * block_size_);
    const std::vector<BlockId> old_table(blocks_.Table(sequence).begin(), blocks_.Table(sequence).end());
    const size_t old_copies = step->copies.size();
    const int needed = blocks_.NumBlocksNeeded(sequence, first, end);
    const int free = blocks_.num_free_blocks();
    if (!blocks_.Allocate(sequence, first, end, &step->copies)) {
      EXPECT_GT(needed, free);
      EXPECT_EQ(blocks_.num_free_blocks(), free);
      EXPECT_EQ(blocks_.Table(sequence), absl::MakeConstSpan(old_table));
      EXPECT_EQ(step->copies.size(), old_copies);
      return;
    }
    EXPECT_EQ(blocks_.num_free_blocks(), free - needed);
    EXPECT_LE(step->copies.size(), old_copies + 1) << "only the partial last block is copied";
    for (int i = first; i < end; ++i) prefix.push_back(random_.Next());
    AddSlots(sequence, first, &step->writes);
    CheckNewBlocks(old_table, blocks_.Table(sequence), *step, old_copies);
    CheckSoleOwner(sequence, first, end);
  }

  // Blocks that are new in the table are not part of a copy in flight, except as the destination of the new copy.
  void CheckNewBlocks(const std::vector<BlockId>& old_table, absl::Span<const BlockId> table, const Step& step,
                      size_t old_copies) {
    std::set<BlockId> pinned;
    for (const Step& earlier : steps_) AddEnds(earlier.copies, earlier.copies.size(), &pinned);
    AddEnds(step.copies, old_copies, &pinned);
    for (BlockId block : table) {
      if (std::find(old_table.begin(), old_table.end(), block) == old_table.end()) {
        EXPECT_FALSE(pinned.contains(block)) << block << " is an end of a copy in flight";
      }
    }
  }

  void CheckSoleOwner(SequenceId writer, int first, int end) {
    const absl::Span<const BlockId> table = blocks_.Table(writer);
    for (int i = first / block_size_; i <= (end - 1) / block_size_; ++i) {
      for (const auto& [other, prefix] : sequences_) {
        const absl::Span<const BlockId> others = blocks_.Table(other);
        if (other == writer) continue;
        EXPECT_EQ(std::count(others.begin(), others.end(), table[i]), 0) << writer << " writes a block of " << other;
      }
    }
  }

  void ExecuteStep() {
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    std::vector<BlockCopy> copies = step.copies;
    if (random_.OneIn(2)) std::reverse(copies.begin(), copies.end());  // Copies do not depend on each other.
    for (const BlockCopy& copy : copies) {
      std::copy_n(slots_.begin() + static_cast<int64_t>(Value(copy.source)) * block_size_, block_size_,
                  slots_.begin() + static_cast<int64_t>(Value(copy.destination)) * block_size_);
    }
    for (const auto& [slot, hash] : step.writes) slots_[slot] = hash;
    for (const auto& [slot, hash] : step.reads) {
      ASSERT_EQ(slots_[slot], hash) << step.id << ", slot " << slot;
    }
    blocks_.OnStepCommitted(step.id);
    ASSERT_EQ(blocks_.CheckIntegrity(), absl::OkStatus());
  }

  void Abandon() {
    steps_.clear();
    blocks_.OnStepsAbandoned();
    next_step_ = StepId{1};
    while (!sequences_.empty()) Free(sequences_.begin()->first);
    ASSERT_EQ(blocks_.CheckIntegrity(), absl::OkStatus());
    ASSERT_EQ(blocks_.counts().used, 0);
  }

  void Fork(SequenceId parent) {
    const SequenceId child = NewId();
    blocks_.Fork(parent, child, static_cast<int>(sequences_[parent].size()));
    sequences_[child] = Prefix(sequences_[parent]);
  }

  void Free(SequenceId sequence) {
    blocks_.Free(sequence);
    sequences_.erase(sequence);
  }

  void AddSlots(SequenceId sequence, int first, Slots* slots) {
    const Prefix& prefix = sequences_[sequence];
    const absl::Span<const BlockId> table = blocks_.Table(sequence);
    for (int i = first; i < static_cast<int>(prefix.size()); ++i) {
      slots->emplace_back(static_cast<int64_t>(Value(table[i / block_size_])) * block_size_ + i % block_size_,
                          prefix[i]);
    }
  }

  static void AddEnds(const std::vector<BlockCopy>& copies, size_t num_copies, std::set<BlockId>* ends) {
    for (size_t i = 0; i < num_copies; ++i) ends->insert({copies[i].source, copies[i].destination});
  }

  SequenceId NewId() { return SequenceId{next_sequence_++}; }
  SequenceId AnyId() {
    return std::next(sequences_.begin(), random_.Between(0, static_cast<int>(sequences_.size()) - 1))->first;
  }

  Random random_;
  const int block_size_;
  PagedBlockManager blocks_;
  std::vector<uint64_t> slots_;
  std::map<SequenceId, Prefix> sequences_;
  std::deque<Step> steps_;  // Planned and not committed.
  StepId next_step_{1};
  uint64_t next_sequence_ = 1;
  int num_copies_ = 0;
};

TEST(PagedBlockManagerPropertyTest, EverySequenceReadsItsOwnPrefixThroughForksAppendsAndFrees) {
  int num_copies = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    ForkSim sim(seed);
    sim.Run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    num_copies += sim.num_copies();
  }
  EXPECT_GT(num_copies, 10000);
}

}  // namespace
}  // namespace quire
