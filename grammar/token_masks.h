// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_TOKEN_MASKS_H_
#define QUIRE_GRAMMAR_TOKEN_MASKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "grammar/byte_trie.h"
#include "grammar/matcher.h"
#include "grammar/state_runs.h"
#include "grammar/token_table.h"

namespace quire::grammar {

// Computes which tokens of a vocabulary may come next. For each state of an automaton it keeps the tokens that are
// allowed whatever follows the rule of the state, and the tokens that reach the end of the rule, with the bytes that
// they have behind this end. Only these bytes are read each time, because what may follow depends on the stack. States
// of equal rules share one mask, also between grammars of the same owner. Not thread-safe.
class TokenMasks {
 public:
  // The masks of states are kept in up to `max_bytes` of memory. When it is full, masks that need much memory and were
  // not used for long are forgotten first.
  explicit TokenMasks(std::shared_ptr<const TokenTable> tokens, size_t max_bytes = size_t{256} << 20);

  // The number of words of a mask. Token t has bit t % 32 of word t / 32.
  size_t num_words() const { return (static_cast<size_t>(tokens_->vocab_size()) + 31) / 32; }
  // Takes over which states of the automaton have equal masks, so that Fill need not find it out: for each rule the
  // result of FindEqualStates with the longest token of the vocabulary, or nothing. [rules]
  void SetEqualStates(const std::shared_ptr<const Automaton>& automaton,
                      std::vector<std::vector<StateId>> equal_states);

  // Masks that are made before they are needed.
  static constexpr int64_t kMaxPreparedWork = 300'000;
  struct Preparation {
    StateId next_state = 0;
    int64_t work = kMaxPreparedWork;  // What is left.
  };
  // Makes masks that take long before they are needed: for states where most texts may follow. It stops when it
  // has done `max_work`, and continues in the next call. Returns whether there is more to do: it ends with
  // kMaxPreparedWork, and before the memory is full. The other masks are made when Fill needs them.
  bool Prepare(const std::shared_ptr<const Automaton>& automaton, int64_t max_work, Preparation* preparation);

  // Sets the bit of every token that the matcher would accept, and of end tokens if the text may end, and clears all
  // others. Subtracts what it does from *work: 1 is about 5 to 30 ns. Returns false when *work is used up; then the
  // mask is of no use. REQUIRES: mask.size() == num_words().
  bool Fill(const Matcher& matcher, absl::Span<uint32_t> mask, int64_t* work);

  const TokenTable& tokens() const { return *tokens_; }
  // The memory of the masks that are kept.
  size_t num_bytes() const { return num_bytes_; }

 private:
  // What is known of a state without its stack.
  struct StateMask {
    std::vector<uint32_t> bits;  // [num_words], or empty: then `allowed` has the tokens.
    std::vector<TokenId> allowed;
    // The bytes behind the end of the rule, with the tokens that have them.
    ByteTrie leaving;

    size_t num_bytes() const { return sizeof(StateMask) + (bits.size() + allowed.size()) * 4 + leaving.num_bytes(); }
  };
  // The masks of one automaton, or of all rules with the same content. They are forgotten together.
  struct Group {
    absl::flat_hash_map<StateId, std::unique_ptr<StateMask>> masks;
    std::string content;
    size_t num_bytes = 0;
    uint64_t last_use = 0;
  };
  using GroupId = uint64_t;
  struct Known {
    std::weak_ptr<const Automaton> automaton;
    std::vector<GroupId> groups;  // [rules], 0 is not known yet.
    // [rules][states of the rule], see FindEqualStates. Empty: not known yet.
    std::vector<std::vector<StateId>> equal_states;
  };

  // Returns null when *work is used up.
  const StateMask* MaskOf(const std::shared_ptr<const Automaton>& automaton, StateId state, int64_t* work);
  Known& KnownOf(const std::shared_ptr<const Automaton>& automaton);
  GroupId GroupOf(const Automaton& automaton, RuleId rule, Known* known);
  // Returns the first state with the same mask as `state`.
  StateId FirstEqual(const Automaton& automaton, StateId state, Known* known, int64_t* work);
  // Forgets automata that are gone.
  void ForgetAutomata();
  // Forgets masks when all of them need too much memory.
  void LimitMemory();
  void Forget(GroupId id);
  std::unique_ptr<StateMask> Build(const Automaton& automaton, StateId state);
  // Finds the tokens of a state in a rule that calls no others.
  void WalkLeaf(const Automaton& automaton, StateId state, StateMask* out);
  void WalkRule(const Automaton& automaton, StateId state, StateMask* out);
  // Sets the bits of the tokens of a node, where the rule is in a state. Returns true if it has also set the bits of
  // all tokens below the node that continue the rule. kNoState: the state is not known.
  bool TakeTokens(int node, StateId state, bool may_end, absl::Span<uint32_t> bits);
  // Adds the tokens below a node of the vocabulary at this depth, where the rule may have ended.
  void AddLeaving(const std::bitset<256>& follow, int node, size_t depth);
  void Finish(StateMask* out);
  // Returns whether the bits of all tokens of a trie are set.
  bool HasAll(const ByteTrie& trie, absl::Span<const uint32_t> mask);
  // Sets the bits of the tokens that lead from frame_ids_ with their bytes in `leaving`.
  void FillLeaving(const Automaton& automaton, const ByteTrie& leaving, absl::Span<uint32_t> mask);

  const std::shared_ptr<const TokenTable> tokens_;
  const size_t max_bytes_;
  size_t num_bytes_ = 0;
  uint64_t num_uses_ = 0;
  uint64_t num_contents_ = 0;  // Number of contents ever made.
  absl::flat_hash_map<GroupId, Group> groups_;
  absl::flat_hash_map<std::string, GroupId> contents_;  // By owner and Automaton::content.
  absl::flat_hash_map<uint64_t, Known> known_;          // By serial number.
  size_t num_known_after_forgetting_ = 0;

  // Scratch.
  std::vector<std::pair<std::string_view, TokenId>> leaving_;
  StateRuns runs_;
  int64_t work_ = 0;  // What is left of the caller's.
  Frames frames_;
  std::vector<PositionSet> levels_;  // The index is the depth in a trie.
  std::vector<Frames::Size> sizes_;  // The frames of each level and of the levels above it.
  std::vector<StateId> states_;
  absl::flat_hash_set<Position> seen_;
  std::vector<FrameId> frame_ids_;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_TOKEN_MASKS_H_
