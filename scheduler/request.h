#ifndef QUIRE_SCHEDULER_REQUEST_H_
#define QUIRE_SCHEDULER_REQUEST_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "scheduler/beam_params.h"
#include "scheduler/sampling_params.h"

namespace quire {

// One call of Generate as the scheduler sees it: token ids in, token ids out. Text, stop strings, deadlines and
// streaming live above. Immutable once submitted.
struct Request {
  RequestId id;
  std::vector<TokenId> prompt;  // At least one token.
  SamplingParams sampling;
  int max_tokens = 16;                  // Generated tokens of each sequence at most; >= 1.
  std::vector<TokenId> stop_token_ids;  // A sequence ends after one of these (end-of-sequence ids included).

  // Sequences that continue the prompt independently: sample i draws what a request with seed + i would. >= 1.
  int num_samples = 1;
  // Beam search in place of drawing. REQUIRES: num_samples is 1 and sampling.num_candidates 0.
  std::optional<BeamParams> beam;
  std::shared_ptr<const StopCondition> beam_stop;  // May be null.

  // Computed prefixes are shared with requests of the same salt only.
  std::string cache_salt;
  bool bypass_prefix_cache = false;  // Neither uses computed prefixes nor leaves any.

  int priority = 0;        // Under the priority policy smaller is served first.
  std::string tenant;      // Under fair share tenants get equal numbers of tokens, by weight.
  int64_t arrival_us = 0;  // Clock of the caller; orders nothing, measures queue time.
  int64_t deadline_us = std::numeric_limits<int64_t>::max();  // Same clock. For the caller, who cancels.
};

// Rows that the request runs in: one per sample or beam.
inline int NumRows(const Request& request) {
  return request.beam.has_value() ? request.beam->width : request.num_samples;
}

enum class FinishReason {
  kLength,     // max_tokens, or the model's context is full.
  kStopToken,  // One of stop_token_ids was generated; it is the last token emitted.
  kCancelled,
  kDeadline,
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_REQUEST_H_
