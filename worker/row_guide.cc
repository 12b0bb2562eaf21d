// SPDX-License-Identifier: Apache-2.0

#include "worker/row_guide.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

void ClearBit(TokenId token, std::vector<uint32_t>* words) {
  const size_t word = static_cast<size_t>(token) / 32;
  if (word < words->size()) (*words)[word] &= ~(uint32_t{1} << (token % 32));
}

int CountBits(absl::Span<const uint32_t> words) {
  int count = 0;
  for (const uint32_t word : words) count += std::popcount(word);
  return count;
}

// Appends the tokens whose bits are set, after all bits are changed with `flip`.
void AppendTokens(absl::Span<const uint32_t> words, uint32_t flip, int vocab_size, std::vector<TokenId>* out) {
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint32_t word = words[i] ^ flip; word != 0; word &= word - 1) {
      const TokenId token = static_cast<TokenId>(i * 32) + std::countr_zero(word);
      if (token < vocab_size) out->push_back(token);
    }
  }
}

}  // namespace

void RowGuide::Append(TokenId token) {
  const grammar::TokenTable& tokens = maker_->masks.tokens();
  if (tokens.is_end(token) || is_too_expensive_) return;
  is_too_expensive_ = grammar_->account.is_empty();
  if (is_too_expensive_) return;
  int64_t left = 0;
  matcher_.Accept(tokens.bytes(token), &left);
  maker_->budget.Spend(-left, &grammar_->account);
}

absl::Status RowGuide::FillMask(std::vector<uint32_t>* words) const {
  words->resize(maker_->masks.num_words());
  const int64_t limit = maker_->budget.Limit(&grammar_->account);
  int64_t left = limit;
  absl::Status status;
  if (is_too_expensive_) {
    status = absl::ResourceExhaustedError("it takes too many steps to read the output with this guide");
  } else if (matcher_.is_exhausted()) {
    status = absl::ResourceExhaustedError("the output can be read in too many ways with this guide");
  } else if (!maker_->masks.Fill(matcher_, absl::MakeSpan(*words), &left)) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("it takes more than ", limit, " steps to find the tokens that this guide allows next"));
  }
  maker_->budget.Spend(limit - left, &grammar_->account);
  if (!status.ok()) std::fill(words->begin(), words->end(), 0);
  if (CountBits(*words) > 0) return status;
  for (const TokenId token : maker_->masks.tokens().end_tokens()) {
    (*words)[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  }
  return status;
}

GuidedTokens SelectTokens(absl::Span<const uint32_t> mask, int vocab_size, absl::Span<const TokenId> allowed,
                          absl::Span<const TokenId> masked) {
  std::vector<uint32_t> words(mask.begin(), mask.end());
  if (!allowed.empty()) {
    std::fill(words.begin(), words.end(), 0);
    for (const TokenId token : allowed) {
      const size_t word = static_cast<size_t>(token) / 32;
      words[word] |= mask[word] & (uint32_t{1} << (token % 32));
    }
  }
  for (const TokenId token : masked) ClearBit(token, &words);
  int count = CountBits(words);
  if (count == 0) {
    words.assign(mask.begin(), mask.end());
    count = CountBits(words);
  }
  GuidedTokens tokens;
  if (count <= vocab_size / 2) {
    AppendTokens(words, 0, vocab_size, &tokens.allowed);
  } else {
    AppendTokens(words, ~uint32_t{0}, vocab_size, &tokens.masked);
  }
  return tokens;
}

}  // namespace quire
