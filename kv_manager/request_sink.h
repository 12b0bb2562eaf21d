#ifndef QUIRE_KV_MANAGER_REQUEST_SINK_H_
#define QUIRE_KV_MANAGER_REQUEST_SINK_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// Where the events of one request go. Called on a step-loop thread, one call at a time: an implementation only queues
// and returns. After OnFinished or OnFailed nothing follows.
class RequestSink {
 public:
  virtual ~RequestSink() = default;

  // The request runs for the first time.
  virtual void OnStarted() = 0;
  // Logprobs of prompt tokens at positions first_position, first_position + 1, ...; before any token.
  virtual void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) = 0;
  // The next token, at `position` of the sequence (prompt included). Positions of a sample are consecutive.
  virtual void OnToken(int sample_index, int position, ScoredToken token) = 0;
  virtual void OnFinished(int sample_index, FinishReason reason) = 0;
  // The request is over without a result: refused, or its worker is gone and nobody can take it.
  virtual void OnFailed(absl::Status status) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUEST_SINK_H_
