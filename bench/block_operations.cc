// SPDX-License-Identifier: Apache-2.0

#include "bench/block_operations.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "bench/clocks.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

const std::string kNoSalt;

// Takes one pool from empty to full and then to eviction.
class Round {
 public:
  explicit Round(const BlockOperationsOptions& options)
      : options_(options),
        blocks_per_sequence_(options.context_tokens / options.block_size),
        blocks_({.num_blocks = options.num_sequences * blocks_per_sequence_, .block_size = options.block_size}) {
    for (int i = 0; i < options.num_sequences; ++i) {
      std::vector<TokenId>& tokens = prompts_.emplace_back();
      for (int j = 0; j < options.context_tokens; ++j) tokens.push_back((i * 7919 + j * 31) % 100'000);
      tokens[0] = i;
      misses_.push_back(tokens);
      misses_.back()[0] += options.num_sequences;
    }
  }

  void Run(BlockOperations* times) {
    blocks_.BeginStep(StepId{1});
    ForEach([&](int i) { blocks_.AdoptPrefix(Sequence(i), kNoSalt, prompts_[i], 0); });
    const int num_blocks = options_.num_sequences * blocks_per_sequence_;
    times->allocate_block.Add(Time([&](int i) { Grow(Sequence(i)); }) / num_blocks);
    times->publish_block.Add(Time([&](int i) { Publish(i); }) / num_blocks);
    times->fork.Add(PerSequence([&](int i) { blocks_.Fork(Sequence(i), Other(i), options_.context_tokens); }));
    times->free_fork.Add(PerSequence([&](int i) { blocks_.Free(Other(i)); }));
    times->find_hit.Add(PerSequence([&](int i) { Find(prompts_[i]); }));
    times->find_miss.Add(PerSequence([&](int i) { FindNothing(misses_[i]); }));
    const int num_cached = options_.context_tokens - options_.block_size;
    times->adopt.Add(PerSequence([&](int i) { blocks_.AdoptPrefix(Other(i), kNoSalt, prompts_[i], num_cached); }));
    ForEach([&](int i) { blocks_.Free(Other(i)); });
    times->copy_states.Add(PerRound([&] { blocks_.CopyStates(&states_); }));
    times->audit.Add(PerRound([&] { QUIRE_CHECK(blocks_.Audit().is_clean()); }));
    times->free_last.Add(PerSequence([&](int i) { blocks_.Free(Sequence(i)); }));
    QUIRE_CHECK_EQ(blocks_.counts().free, 0);
    times->evict_block.Add(Time([&](int i) { Grow(Other(i)); }) / num_blocks);
    QUIRE_CHECK_EQ(blocks_.num_evictions(), num_blocks);
  }

 private:
  SequenceId Sequence(int i) const { return SequenceId{static_cast<uint64_t>(i) + 1}; }
  SequenceId Other(int i) const { return SequenceId{static_cast<uint64_t>(i) + 1'000'000}; }

  void ForEach(absl::FunctionRef<void(int)> call) const {
    for (int i = 0; i < options_.num_sequences; ++i) call(i);
  }
  double Time(absl::FunctionRef<void(int)> call) const {
    const double start = ThreadCpuSeconds();
    ForEach(call);
    return ThreadCpuSeconds() - start;
  }
  static double PerRound(absl::FunctionRef<void()> call) {
    const double start = ThreadCpuSeconds();
    call();
    return ThreadCpuSeconds() - start;
  }
  double PerSequence(absl::FunctionRef<void(int)> call) const { return Time(call) / options_.num_sequences; }

  void Grow(SequenceId sequence) {
    std::vector<BlockCopy> copies;
    for (int end = options_.block_size; end <= options_.context_tokens; end += options_.block_size) {
      const bool has_room = blocks_.Allocate(sequence, end - options_.block_size, end, &copies);
      QUIRE_CHECK(has_room) << sequence;
    }
  }

  void Publish(int i) {
    for (int end = options_.block_size; end <= options_.context_tokens; end += options_.block_size) {
      blocks_.Publish(Sequence(i), prompts_[i], end);
    }
  }

  void Find(const std::vector<TokenId>& prompt) const {
    const PrefixHit hit = blocks_.FindPrefix(kNoSalt, prompt);
    QUIRE_CHECK_EQ(hit.num_block_tokens, options_.context_tokens - options_.block_size);
  }

  void FindNothing(const std::vector<TokenId>& prompt) const {
    const PrefixHit hit = blocks_.FindPrefix(kNoSalt, prompt);
    QUIRE_CHECK_EQ(hit.num_tokens, 0);
  }

  const BlockOperationsOptions options_;
  const int blocks_per_sequence_;
  PagedBlockManager blocks_;
  std::string states_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<std::vector<TokenId>> misses_;
};

}  // namespace

BlockOperations MeasureBlockOperations(const BlockOperationsOptions& options) {
  BlockOperations times;
  for (int i = 0; i < options.num_rounds; ++i) Round(options).Run(&times);
  return times;
}

}  // namespace quire
