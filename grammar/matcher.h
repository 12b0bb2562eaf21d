// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_MATCHER_H_
#define QUIRE_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/stacks.h"

namespace quire::grammar {

// Rules that are nested more deeply than this cannot begin.
inline constexpr int kMaxNesting = 256;

// A text of an ambiguous grammar can be read in many ways. These limits bound what one token and one row cost.
inline constexpr int64_t kMaxAcceptWork = 200'000;  // Of one call of Accept, as in stacks.h.
inline constexpr size_t kMaxPositions = 4096;       // Behind a token.
inline constexpr size_t kMaxLinks = 16'384;         // Behind a token.

// Reads a text byte by byte and knows how it may continue. Its state depends only on the grammar and on the calls of
// Accept, one call for each token. A copy is a fork: it costs some hundred bytes, and at most some hundred kilobytes
// when the grammar is ambiguous. To go back, keep a copy, or start again and accept the tokens once more. Not
// thread-safe; copies share nothing that changes.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Automaton> automaton);

  // Reads the bytes of a token. Returns false if no text of the grammar begins with all bytes so far, or if a limit is
  // reached; then nothing is accepted any more and the text cannot end.
  bool Accept(std::string_view bytes);
  // The same. Subtracts what it does from *work.
  bool Accept(std::string_view bytes, int64_t* work);

  // Returns whether the bytes so far are a whole text of the grammar.
  bool can_end() const { return set_.can_end; }
  // Returns whether the bytes so far are no beginning of a text. It also becomes true where only rules could follow
  // that are nested too deeply, and when a limit is reached.
  bool is_dead() const { return !set_.can_end && set_.positions.empty(); }
  // Returns whether a limit is reached, because the text can be read in too many ways.
  bool is_exhausted() const { return is_exhausted_; }
  bool MayContinue() const { return !set_.positions.empty(); }

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }
  const Frames& frames() const { return frames_; }
  // The positions with successors.
  const PositionSet& set() const { return set_; }

 private:
  // Ends a token, after which `work` is left. Nothing can follow if a limit is reached.
  void Finish(int64_t work);
  // Removes positions without successors, and frames that nothing leads to.
  void Compact();

  std::shared_ptr<const Automaton> automaton_;
  Frames frames_;
  PositionSet set_;
  bool is_exhausted_ = false;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_MATCHER_H_
