// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_MATCHER_H_
#define QUIRE_GRAMMAR_MATCHER_H_

#include <memory>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/stacks.h"

namespace quire::grammar {

// Rules that are nested more deeply than this cannot begin.
inline constexpr int kMaxNesting = 256;

// Reads a text byte by byte and knows how it may continue. Its state depends only on the grammar and on the calls of
// Accept, one call for each token. A copy is a fork: it costs some hundred bytes. To go back, keep a copy, or start
// again and accept the tokens once more. Not thread-safe; copies share nothing that changes.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Automaton> automaton);

  // Reads the bytes of a token. Returns false if no text of the grammar begins with all bytes so far; then nothing is
  // accepted any more and the text cannot end.
  bool Accept(std::string_view bytes);

  // Returns whether the bytes so far are a whole text of the grammar.
  bool can_end() const { return set_.can_end; }
  // Returns whether the bytes so far are no beginning of a text. It also becomes true where only rules could follow
  // that are nested too deeply.
  bool is_dead() const { return !set_.can_end && set_.positions.empty(); }
  bool MayContinue() const { return !set_.positions.empty(); }

  const Automaton& automaton() const { return *automaton_; }
  const Frames& frames() const { return frames_; }
  // The positions with successors.
  const PositionSet& set() const { return set_; }

 private:
  // Removes positions without successors, and frames that nothing refers to.
  void Compact();

  std::shared_ptr<const Automaton> automaton_;
  Frames frames_;
  PositionSet set_;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_MATCHER_H_
