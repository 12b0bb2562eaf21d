// SPDX-License-Identifier: Apache-2.0

#include "worker/row_guide.h"

#include <algorithm>
#include <bit>
#include <cstddef>

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
  if (!masks_->tokens().is_end(token)) matcher_.Accept(masks_->tokens().bytes(token));
}

void RowGuide::FillMask(std::vector<uint32_t>* words) const {
  words->resize(masks_->num_words());
  masks_->Fill(matcher_, absl::MakeSpan(*words));
  if (CountBits(*words) > 0) return;
  for (const TokenId token : masks_->tokens().end_tokens()) {
    (*words)[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  }
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
