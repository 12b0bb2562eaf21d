// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_GUIDED_WALK_H_
#define QUIRE_TESTS_FUZZ_GUIDED_WALK_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"

namespace quire::grammar {

// A text of a grammar, token by token, with the checks that hold for every grammar and vocabulary. A copy is a fork,
// like the fork of a row. The vocabulary must have all bytes as tokens. Not thread-safe, and neither are copies beside
// each other, because they share `masks`.
class GuidedWalk {
 public:
  // `masks` must outlive the walk.
  GuidedWalk(std::shared_ptr<const Automaton> automaton, TokenMasks* masks);

  // Accepts one of the tokens that the mask allows; which one depends on `number`. Returns false if the text ends here:
  // no token is allowed, or only such as need rules that are nested too deeply.
  bool Accept(uint64_t number);
  // The same, but takes a token that begins with one of `bytes` if there is one. So texts come to their ends and nest
  // deeply, which they seldom do when all tokens are equal.
  bool AcceptOneOf(std::string_view bytes, uint64_t number);
  // Lets a fork accept any token. It may accept it only if the mask allows it; and, if `is_exact`, then it must. In a
  // grammar with deep nesting, or with very many ways to read a text, a mask may allow what a matcher then refuses.
  void Try(TokenId token, bool is_exact);
  // Lets a new matcher accept the tokens so far. It must come to the same state, with the same mask.
  void Replay();

  bool has_ended() const { return allowed_.empty(); }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // Those that were accepted.

 private:
  bool AcceptToken(TokenId token);
  // The work that a mask may take. A text ends where it takes more.
  static constexpr int64_t kMaxFillWork = 10'000'000;

  // Computes the mask, and what it allows besides end tokens.
  void Fill();

  std::shared_ptr<const Automaton> automaton_;
  Matcher matcher_;
  TokenMasks* masks_;
  std::vector<uint32_t> mask_;
  std::vector<TokenId> allowed_;
  std::vector<TokenId> tokens_;
  bool is_too_expensive_ = false;  // The mask is not known.
};

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_FUZZ_GUIDED_WALK_H_
