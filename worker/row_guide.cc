// SPDX-License-Identifier: Apache-2.0

#include "worker/row_guide.h"

#include <algorithm>
#include <bit>

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
  if (!maker_->masks.tokens().is_end(token)) unread_.push_back(token);
}

absl::Status RowGuide::FillMask(std::vector<uint32_t>* words) {
  if (const absl::Status& error = grammar_->error; !error.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the guide does not compile: ", error.message()));
  }
  if (!grammar_->begin.has_value()) return absl::UnavailableError("the guide is not compiled yet");
  if (!std::exchange(is_drawing_, true)) {
    GuideBudget::BeginDraw(&grammar_->account);
    work_ = 0;
  }
  if (!is_light_) maker_->budget.TakeTurn(&grammar_->account);
  absl::Status status = Read();
  if (status.ok()) status = Fill(words);
  is_drawing_ = absl::IsUnavailable(status);
  is_light_ = maker_->budget.IsLight(work_) && (is_light_ || !is_drawing_);
  if (!status.ok() || CountBits(*words) > 0) return status;
  for (const TokenId token : maker_->masks.tokens().end_tokens()) {
    (*words)[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  }
  return status;
}

std::pair<bool, uint64_t> RowGuide::turn() const {
  // Of the light rows, those whose draws were postponed come first.
  return {!is_light_, is_light_ ? (is_drawing_ ? 0 : 1) : grammar_->account.last_turn()};
}

int64_t RowGuide::Allowed() const {
  return maker_->budget.Allowed(is_light_, work_, grammar_->account);
}

void RowGuide::Spend(int64_t work) {
  work_ += work;
  maker_->budget.Spend(work, &grammar_->account);
}

absl::Status RowGuide::OutOfWork(const char* what) const {
  if (maker_->budget.may_postpone() && !grammar_->account.is_empty()) {
    return absl::UnavailableError("the guides have used up the work of the step");
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("it takes too many steps to ", what, ": its rows have used up the ", GuideBudget::kMaxSavedWork,
                   " steps that a guide has at most, of which each draw adds ", GuideBudget::kWorkPerDraw));
}

absl::Status RowGuide::Read() {
  if (!matcher_.has_value()) matcher_ = grammar_->begin;
  for (; num_read_ < unread_.size(); ++num_read_) {
    if (Allowed() <= 0) return OutOfWork("read the output with this guide");
    int64_t left = 0;
    matcher_->Accept(maker_->masks.tokens().bytes(unread_[num_read_]), &left);
    Spend(-left);
  }
  unread_.clear();
  num_read_ = 0;
  if (!matcher_->is_exhausted()) return absl::OkStatus();
  return absl::ResourceExhaustedError("the output can be read in too many ways with this guide");
}

absl::Status RowGuide::Fill(std::vector<uint32_t>* words) {
  words->resize(maker_->masks.num_words());
  const int64_t allowed = Allowed();
  int64_t left = allowed;
  const bool is_done = allowed > 0 && maker_->masks.Fill(*matcher_, absl::MakeSpan(*words), &left);
  Spend(allowed - left);
  return is_done ? absl::OkStatus() : OutOfWork("find the tokens that this guide allows next");
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
