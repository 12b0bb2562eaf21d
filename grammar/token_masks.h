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
#include "absl/types/span.h"
#include "grammar/byte_trie.h"
#include "grammar/matcher.h"
#include "grammar/state_runs.h"
#include "grammar/token_table.h"

namespace quire::grammar {

// Computes which tokens of a vocabulary may come next. For each state of an automaton it keeps the tokens that are
// allowed whatever follows the rule of the state, and the tokens that reach the end of the rule, with the bytes that
// they have behind this end. Only these bytes are read each time, because what may follow depends on the stack. States
// of equal rules share one mask, also between grammars. Not thread-safe.
class TokenMasks {
 public:
  // The masks of states are kept in up to `max_bytes` of memory.
  explicit TokenMasks(std::shared_ptr<const TokenTable> tokens, size_t max_bytes = size_t{256} << 20);

  // The number of words of a mask. Token t has bit t % 32 of word t / 32.
  size_t num_words() const { return (static_cast<size_t>(tokens_->vocab_size()) + 31) / 32; }
  // Makes masks that take long before they are needed: those of states where most texts may follow. It stops when it
  // has visited kMaxPreparedNodes nodes of the vocabulary, which took up to 20 ms (docs/benchmarks.md), and before the
  // memory is full. The caller's thread does nothing else meanwhile. The others are made when Fill needs them.
  void Prepare(const Automaton& automaton);
  static constexpr int64_t kMaxPreparedNodes = 1'000'000;

  // Sets the bit of every token that the matcher would accept, and of end tokens if the text may end, and clears all
  // others. REQUIRES: mask.size() == num_words().
  void Fill(const Matcher& matcher, absl::Span<uint32_t> mask);

  const TokenTable& tokens() const { return *tokens_; }
  // The memory of the masks that are kept.
  size_t num_bytes() const { return num_bytes_; }

 private:
  // This is what is known of a state without its stack.
  struct StateMask {
    std::vector<uint32_t> bits;  // [num_words], or empty: then `allowed` has the tokens.
    std::vector<TokenId> allowed;
    // The bytes behind the end of the rule, with the tokens that have them.
    ByteTrie leaving;
  };
  using Key = std::pair<uint64_t, StateId>;

  const StateMask& MaskOf(const Automaton& automaton, StateId state);
  Key KeyOf(const Automaton& automaton, StateId state);
  // Forgets all masks when they need too much memory.
  void LimitMemory();
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
  // Sets the bits of the tokens that lead from the frame with their bytes in `leaving`.
  void FillLeaving(const Matcher& matcher, FrameId frame, const ByteTrie& leaving, absl::Span<uint32_t> mask);

  const std::shared_ptr<const TokenTable> tokens_;
  const size_t max_bytes_;
  size_t num_bytes_ = 0;
  absl::flat_hash_map<Key, std::unique_ptr<StateMask>> masks_;
  absl::flat_hash_map<std::string, uint64_t> contents_;                // Owners of masks by Automaton::content.
  absl::flat_hash_map<std::pair<uint64_t, RuleId>, uint64_t> owners_;  // The same by serial number and rule.

  // Scratch.
  std::vector<std::pair<std::string_view, TokenId>> leaving_;
  StateRuns runs_;
  int64_t num_visited_ = 0;  // Nodes of the vocabulary.
  Frames frames_;
  std::vector<PositionSet> levels_;  // The index is the depth in a trie.
  std::vector<size_t> num_frames_;   // The frames of each level and of those above it.
  std::vector<StateId> states_;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_TOKEN_MASKS_H_
