// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/score_columns.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status ScoreReader::CheckColumns(int num_entries) const {
  const std::string entries = absl::StrCat(num_entries);
  if (in_.logprobs_size() != num_entries) return Bad("logprobs: length", in_.logprobs_size(), entries);
  if (in_.ranks_size() != num_entries) return Bad("ranks: length", in_.ranks_size(), entries);
  if (in_.top_lengths_size() != num_entries) return Bad("top_lengths: length", in_.top_lengths_size(), entries);
  uint64_t num_top = 0;
  for (const uint32_t length : in_.top_lengths()) num_top += length;
  if (num_top != static_cast<uint64_t>(in_.top_token_ids_size()))
    return Bad("top_token_ids: length", in_.top_token_ids_size(), absl::StrCat(num_top));
  if (num_top != static_cast<uint64_t>(in_.top_logprobs_size()))
    return Bad("top_logprobs: length", in_.top_logprobs_size(), absl::StrCat(num_top));
  return absl::OkStatus();
}

absl::Status ScoreReader::Next(int num_logprobs, ScoredToken* out) {
  const int entry = entry_++;
  const uint32_t num_top = in_.top_lengths(entry);
  const uint32_t max_top = std::max(num_logprobs, 0);
  if (num_top > max_top) return Bad("top_lengths", num_top, absl::StrCat("at most ", max_top));
  const int first_top = next_top_;
  next_top_ += num_top;
  if (num_logprobs < 0) return absl::OkStatus();  // Another row of the step asked; this one did not.

  out->logprob = in_.logprobs(entry);
  if (std::isnan(out->logprob)) return Bad("logprobs: NaN at", entry, "a number");
  if (in_.ranks(entry) < 1 || in_.ranks(entry) > static_cast<uint32_t>(vocab_size_))
    return Bad("ranks", in_.ranks(entry), absl::StrCat("1 .. ", vocab_size_));
  out->rank = in_.ranks(entry);
  out->top.reserve(num_top);
  for (int i = first_top; i < next_top_; ++i) {
    if (in_.top_token_ids(i) >= static_cast<uint32_t>(vocab_size_))
      return Bad("top_token_ids", in_.top_token_ids(i), absl::StrCat("less than ", vocab_size_));
    if (std::isnan(in_.top_logprobs(i))) return Bad("top_logprobs: NaN at", i, "a number");
    out->top.push_back({static_cast<TokenId>(in_.top_token_ids(i)), in_.top_logprobs(i)});
  }
  return absl::OkStatus();
}

absl::Status ScoreReader::Bad(absl::string_view column, uint64_t value, absl::string_view limit) const {
  return absl::InternalError(absl::StrCat("worker sent ", name_, ".", column, " ", value, ", expected ", limit));
}

void EncodeScores(const std::vector<ScoredToken>& scores, v1::ScoreColumns* out) {
  for (const ScoredToken& score : scores) {
    out->add_logprobs(score.logprob);
    out->add_ranks(static_cast<uint32_t>(score.rank));
    out->add_top_lengths(static_cast<uint32_t>(score.top.size()));
    for (const TokenLogprob& top : score.top) {
      out->add_top_token_ids(static_cast<uint32_t>(top.token));
      out->add_top_logprobs(top.logprob);
    }
  }
}

}  // namespace quire
