// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/guided_walk.h"

#include <bit>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace quire::grammar {

GuidedWalk::GuidedWalk(std::shared_ptr<const Automaton> automaton, TokenMasks* masks)
    : automaton_(std::move(automaton)), matcher_(automaton_), masks_(masks), mask_(masks->num_words()) {
  QUIRE_CHECK(!matcher_.is_dead());
  Fill();
}

void GuidedWalk::Fill() {
  allowed_.clear();
  int64_t work = kMaxFillWork;
  is_too_expensive_ = !masks_->Fill(matcher_, absl::MakeSpan(mask_), &work);
  if (is_too_expensive_) return;
  const TokenTable& table = masks_->tokens();
  for (const TokenId end : table.end_tokens()) {
    QUIRE_CHECK_EQ(mask_[static_cast<size_t>(end) / 32] >> (end % 32) & 1, matcher_.can_end() ? 1u : 0u);
  }
  for (size_t word = 0; word < mask_.size(); ++word) {
    for (uint32_t bits = mask_[word]; bits != 0; bits &= bits - 1) {
      const TokenId token = static_cast<TokenId>(word * 32) + std::countr_zero(bits);
      QUIRE_CHECK_LT(token, table.vocab_size());
      allowed_.push_back(token);
    }
  }
  for (const TokenId end : table.end_tokens()) std::erase(allowed_, end);
  // The vocabulary has all bytes, so a text that may continue has a next token.
  QUIRE_CHECK_EQ(allowed_.empty(), !matcher_.MayContinue());
}

bool GuidedWalk::Accept(uint64_t number) {
  return !allowed_.empty() && AcceptToken(allowed_[number % allowed_.size()]);
}

bool GuidedWalk::AcceptOneOf(std::string_view bytes, uint64_t number) {
  std::vector<TokenId> tokens;
  for (const TokenId token : allowed_) {
    if (bytes.find(masks_->tokens().bytes(token)[0]) != bytes.npos) tokens.push_back(token);
  }
  return tokens.empty() ? Accept(number) : AcceptToken(tokens[number % tokens.size()]);
}

bool GuidedWalk::AcceptToken(TokenId token) {
  if (!matcher_.Accept(masks_->tokens().bytes(token))) {
    QUIRE_CHECK(matcher_.is_dead());
    allowed_.clear();
    return false;
  }
  tokens_.push_back(token);
  Fill();
  return true;
}

void GuidedWalk::Try(TokenId token, bool is_exact) {
  const std::string_view bytes = masks_->tokens().bytes(token);
  if (bytes.empty() || matcher_.is_dead() || is_too_expensive_) return;
  Matcher fork = matcher_;
  const bool is_allowed = (mask_[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  const bool is_accepted = fork.Accept(bytes);
  QUIRE_CHECK(is_accepted ? is_allowed : !(is_allowed && is_exact && !fork.is_exhausted()))
      << "token " << token << " \"" << bytes << "\"";
  QUIRE_CHECK_EQ(is_accepted, !fork.is_dead());
}

void GuidedWalk::Replay() {
  if (matcher_.is_dead() || is_too_expensive_) return;
  Matcher again(automaton_);
  for (const TokenId token : tokens_) QUIRE_CHECK(again.Accept(masks_->tokens().bytes(token)));
  QUIRE_CHECK_EQ(again.can_end(), matcher_.can_end());
  std::vector<uint32_t> mask(mask_.size());
  int64_t work = kMaxFillWork;
  if (masks_->Fill(again, absl::MakeSpan(mask), &work)) QUIRE_CHECK(mask == mask_);
}

}  // namespace quire::grammar
