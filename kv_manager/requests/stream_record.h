// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_STREAM_RECORD_H_
#define QUIRE_KV_MANAGER_REQUESTS_STREAM_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/requests/response_set.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

// What the engine has told about one request, to be read in the order of the members. The order of events of
// different samples does not matter. A value.
struct StreamEvents {
  struct SampleToken {
    int sample_index;
    ScoredToken token;
  };

  struct NumericsChange {
    int sample_index;
    int position;
  };

  bool empty() const {
    return !num_cached_tokens.has_value() && !pinned_tokens.has_value() && prompt_logprobs.empty() &&
           numerics_changes.empty() && tokens.empty() && finished.empty() && !end.has_value();
  }

  // Adds events that came later.
  void Append(StreamEvents later);
  void AppendCopyOf(const StreamEvents& later);

  // About how much memory the events use.
  int64_t num_bytes() const;

  std::optional<int> num_cached_tokens = std::nullopt;
  std::optional<std::vector<int>> pinned_tokens = std::nullopt;                // See RequestSink::OnPinned.
  std::vector<std::pair<int, std::vector<ScoredToken>>> prompt_logprobs = {};  // First position and tokens.
  std::vector<NumericsChange> numerics_changes = {};                           // See RequestSink::OnNumericsChanged.
  std::vector<SampleToken> tokens = {};  // Tokens of a sample are at consecutive positions.
  std::vector<Finished> finished = {};
  std::optional<absl::Status> end = std::nullopt;  // If it is OK, the samples that have not finished were aborted.
};

// Everything that is needed to write the stream of a request again, for a client that has any part of it: the responses
// before the first event, and all events until now. It does not matter whether the events were heard one by one or
// rebuilt from the tokens of the request. Not thread-safe.
class StreamRecord {
 public:
  // `first` has no event yet.
  explicit StreamRecord(ResponseSet first) : first_(std::move(first)) {}

  // Adds events, and returns the next ones that have not been read, with at most `max_tokens` tokens. What has no order
  // among the samples comes with the last tokens.
  StreamEvents AppendAndRead(StreamEvents events, size_t max_tokens);

  // The request has ended, unless an event has said so already: a stop string has ended its last sample.
  void SetEnd(const absl::Status& status);

  // The responses before the first event.
  const ResponseSet& first() const { return first_; }

  // Returns whether everything has been read.
  bool is_read() const { return next_ == End(); }
  // Reads from the beginning again.
  void Rewind() { next_ = {}; }

 private:
  // Says how much of each list has been read.
  struct Position {
    bool operator==(const Position&) const = default;

    bool num_cached_tokens = false;
    bool pinned_tokens = false;
    size_t prompt_logprobs = 0;
    size_t numerics_changes = 0;
    size_t tokens = 0;
    size_t finished = 0;
    bool end = false;
  };

  StreamEvents Read(size_t max_tokens);
  // The position behind everything.
  Position End() const;

  const ResponseSet first_;
  StreamEvents events_;
  Position next_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_STREAM_RECORD_H_
