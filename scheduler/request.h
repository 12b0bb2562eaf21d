#ifndef QUIRE_SCHEDULER_REQUEST_H_
#define QUIRE_SCHEDULER_REQUEST_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"
#include "scheduler/sampling_params.h"

namespace quire {

// One call of Generate as the scheduler sees it: token ids in, token ids out. Text, stop strings and streaming live
// above. Immutable once submitted.
struct Request {
  RequestId id;
  std::vector<TokenId> prompt;  // At least one token.
  SamplingParams sampling;
  int max_tokens = 16;                  // Generated tokens at most; >= 1.
  std::vector<TokenId> stop_token_ids;  // Generation ends after one of these (end-of-sequence ids included).
  int priority = 0;                     // Under the priority policy smaller is served first.
  int64_t arrival_us = 0;               // Clock of the caller; orders nothing, measures queue time.
  int64_t deadline_us = std::numeric_limits<int64_t>::max();  // Same clock; past it the request is finished.
};

enum class FinishReason {
  kLength,     // max_tokens, or the model's context is full.
  kStopToken,  // One of stop_token_ids was generated; it is the last token emitted.
  kCancelled,
  kDeadline,
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_REQUEST_H_
