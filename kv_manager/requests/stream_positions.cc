// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/stream_positions.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kv_manager/requests/stream_errors.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

StreamPositions::StreamPositions(const ResponseSet& responses, int num_promised_tokens)
    : num_returned_(responses.num_returned()),
      picks_best_(responses.picks_best()),
      num_prompt_tokens_(responses.num_prompt_tokens()),
      has_promise_(num_promised_tokens > 0),
      promised_position_(num_prompt_tokens_ + num_promised_tokens) {
  for (int i = 0; i < responses.num_samples(); ++i) {
    first_positions_.push_back(responses.next_position(i));
    has_end_.push_back(responses.is_finished(i));
  }
  next_positions_ = first_positions_;
}

void StreamPositions::LimitPromise(absl::Span<const int> num_tokens, bool is_over) {
  // Samples of which the best are picked are sent when all have ended.
  if (picks_best_) return repeated_positions_.assign(num_returned_, is_over ? promised_position_ : num_prompt_tokens_);
  QUIRE_CHECK_EQ(static_cast<int>(num_tokens.size()), num_returned_);
  for (const int count : num_tokens) repeated_positions_.push_back(num_prompt_tokens_ + count);
}

void StreamPositions::OnToken(int sample_index, int position) {
  QUIRE_CHECK_LT(sample_index, num_samples());
  QUIRE_CHECK_EQ(position, next_positions_[sample_index]++);
}

int64_t StreamPositions::NumTokens() const {
  return std::accumulate(next_positions_.begin(), next_positions_.end(), int64_t{0}) -
         std::accumulate(first_positions_.begin(), first_positions_.end(), int64_t{0});
}

bool StreamPositions::MayHaveSentEnd(size_t index, bool is_running) const {
  return !is_running || has_end_[index] || picks_best_ || has_promise_;
}

absl::Status StreamPositions::Check(const ReceivedSamples& received, bool is_running) const {
  FieldErrors errors;
  // Whoever checks may hold up the step loop, and a message has room for millions of entries.
  if (received.size() > num_returned_) {
    errors.Add("received", absl::StrCat("has ", received.size(), " entries, at most ", num_returned_,
                                        " are allowed, one for each sample that the request returns"));
    return errors.ToStatus();
  }
  std::vector<bool> is_named(num_returned_);
  std::vector<uint32_t> positions(num_returned_);
  bool is_behind = false;
  for (int i = 0; i < received.size(); ++i) {
    const uint32_t index = received[i].index();
    const std::string path = absl::StrCat("received[", i, "].");
    if (index >= is_named.size()) {
      errors.Add(path + "index", absl::StrCat("is ", index, ", the request returns ", num_returned_));
      continue;
    }
    if (is_named[index]) errors.Add(path + "index", absl::StrCat("is ", index, ", as in another entry"));
    is_named[index] = true;
    positions[index] = received[i].next_position();
    if (received[i].has_finish() && !MayHaveSentEnd(index, is_running)) {
      errors.Add(path + "has_finish", absl::StrCat("is true, the end of index ", index, " was not sent"));
    }
    const uint32_t change = received[i].numerics_changed_at();
    const bool is_possible = change >= static_cast<uint32_t>(num_prompt_tokens_) && change < positions[index];
    if (received[i].has_numerics_changed_at() && !is_possible) {
      errors.Add(path + "numerics_changed_at",
                 absl::StrCat("is ", change, ", the tokens from the end of the prompt to next_position have ",
                              num_prompt_tokens_, " .. ", positions[index], " - 1"));
    }
    if (HasPosition(static_cast<int>(index), received[i].next_position())) continue;
    if (!repeated_positions_.empty() && received[i].next_position() <= static_cast<uint32_t>(promised_position_)) {
      is_behind = true;
      continue;
    }
    errors.Add(path + "next_position",
               absl::StrCat("is ", received[i].next_position(), ", the next position is ", next_positions_[index]));
  }
  for (int i = 0; i < num_returned_ && !picks_best_; ++i) {
    const int first = first_positions_[i];
    if (first == num_prompt_tokens_ || positions[i] >= static_cast<uint32_t>(first)) continue;
    errors.Add("received", absl::StrCat("has ", positions[i], " as next_position of index ", i,
                                        ", the request was continued from position ", first));
  }
  if (!errors.empty()) return errors.ToStatus();
  return is_behind ? UnknownRequestError() : absl::OkStatus();
}

bool StreamPositions::HasPosition(int index, uint32_t position) const {
  // When the best samples are picked, nobody knows yet which they are, and none is sent in parts.
  const bool has_all_sent = picks_best_ || position <= static_cast<uint32_t>(next_positions_[index]);
  if (repeated_positions_.empty()) return has_all_sent || position <= static_cast<uint32_t>(promised_position_);
  return (has_own_client_ && has_all_sent) || position <= static_cast<uint32_t>(repeated_positions_[index]);
}

}  // namespace quire
