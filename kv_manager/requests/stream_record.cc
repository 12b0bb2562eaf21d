// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/stream_record.h"

#include <algorithm>
#include <iterator>

namespace quire {
namespace {

template <typename T>
void MoveTo(std::vector<T>* all, std::vector<T> later) {
  all->insert(all->end(), std::make_move_iterator(later.begin()), std::make_move_iterator(later.end()));
}

template <typename T>
void CopyTo(std::vector<T>* all, const std::vector<T>& later) {
  all->insert(all->end(), later.begin(), later.end());
}

// Copies what follows `*next`, at most `max` entries, and moves `*next` behind it.
template <typename T>
std::vector<T> CopyNext(const std::vector<T>& all, size_t* next, size_t max) {
  const size_t begin = *next;
  *next = std::min(all.size(), begin + std::min(max, all.size() - begin));
  return std::vector<T>(all.begin() + begin, all.begin() + *next);
}

int64_t NumBytes(const ScoredToken& token) {
  return static_cast<int64_t>(sizeof(token) + token.top.size() * sizeof(TokenLogprob));
}

}  // namespace

void StreamEvents::Append(StreamEvents later) {
  if (later.num_cached_tokens.has_value()) num_cached_tokens = later.num_cached_tokens;
  if (later.pinned_tokens.has_value()) pinned_tokens = later.pinned_tokens;
  MoveTo(&prompt_logprobs, std::move(later.prompt_logprobs));
  MoveTo(&numerics_changes, std::move(later.numerics_changes));
  MoveTo(&tokens, std::move(later.tokens));
  MoveTo(&finished, std::move(later.finished));
  if (later.end.has_value()) end = std::move(later.end);
}

void StreamEvents::AppendCopyOf(const StreamEvents& later) {
  if (later.num_cached_tokens.has_value()) num_cached_tokens = later.num_cached_tokens;
  if (later.pinned_tokens.has_value()) pinned_tokens = later.pinned_tokens;
  CopyTo(&prompt_logprobs, later.prompt_logprobs);
  CopyTo(&numerics_changes, later.numerics_changes);
  CopyTo(&tokens, later.tokens);
  CopyTo(&finished, later.finished);
  if (later.end.has_value()) end = later.end;
}

int64_t StreamEvents::num_bytes() const {
  int64_t num_bytes = static_cast<int64_t>(finished.size() * sizeof(Finished));
  num_bytes += static_cast<int64_t>(numerics_changes.size() * sizeof(NumericsChange));
  for (const auto& [first_position, scored] : prompt_logprobs) {
    for (const ScoredToken& token : scored) num_bytes += NumBytes(token);
  }
  for (const SampleToken& token : tokens) num_bytes += NumBytes(token.token) + static_cast<int64_t>(sizeof(int));
  return num_bytes;
}

StreamEvents StreamRecord::AppendAndRead(StreamEvents events, size_t max_tokens) {
  if (!is_read() || events_.end.has_value() || events.tokens.size() > max_tokens) {
    events_.Append(std::move(events));
    return Read(max_tokens);
  }
  // A reader that has read everything gets the new events themselves, and the record a copy.
  events_.AppendCopyOf(events);
  events.num_cached_tokens = events_.num_cached_tokens;
  next_ = End();
  return events;
}

void StreamRecord::SetEnd(const absl::Status& status) {
  if (!events_.end.has_value()) events_.end = status;
}

StreamEvents StreamRecord::Read(size_t max_tokens) {
  StreamEvents read;
  read.num_cached_tokens = events_.num_cached_tokens;
  read.pinned_tokens = events_.pinned_tokens;
  next_.num_cached_tokens = events_.num_cached_tokens.has_value();
  next_.pinned_tokens = events_.pinned_tokens.has_value();
  read.prompt_logprobs = CopyNext(events_.prompt_logprobs, &next_.prompt_logprobs, events_.prompt_logprobs.size());
  read.numerics_changes = CopyNext(events_.numerics_changes, &next_.numerics_changes, events_.numerics_changes.size());
  read.tokens = CopyNext(events_.tokens, &next_.tokens, max_tokens);
  if (next_.tokens < events_.tokens.size()) return read;
  read.finished = CopyNext(events_.finished, &next_.finished, events_.finished.size());
  read.end = events_.end;
  next_.end = events_.end.has_value();
  return read;
}

StreamRecord::Position StreamRecord::End() const {
  return {.num_cached_tokens = events_.num_cached_tokens.has_value(),
          .pinned_tokens = events_.pinned_tokens.has_value(),
          .prompt_logprobs = events_.prompt_logprobs.size(),
          .numerics_changes = events_.numerics_changes.size(),
          .tokens = events_.tokens.size(),
          .finished = events_.finished.size(),
          .end = events_.end.has_value()};
}

}  // namespace quire
