#ifndef QUIRE_KV_MANAGER_ENGINE_REQUEST_SINK_H_
#define QUIRE_KV_MANAGER_ENGINE_REQUEST_SINK_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

// Where the events of one request go. Called on a step-loop thread, one call at a time: an implementation only queues
// and returns. Nothing follows the OnFinished that ends the request, nor OnFailed.
class RequestSink {
 public:
  virtual ~RequestSink() = default;

  // The request runs for the first time, with so many tokens of its prompt from the prefix cache.
  virtual void OnStarted(int num_cached_tokens) = 0;
  // Logprobs of prompt tokens at positions first_position, first_position + 1, ...; before any token.
  virtual void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) = 0;
  // The next token, at `position` of the sequence (prompt included). Positions of a sample are consecutive.
  virtual void OnToken(int sample_index, int position, ScoredToken token) = 0;
  // A sample is over, and with finished.ends_request the request.
  virtual void OnFinished(const Finished& finished) = 0;
  // The request is over before all samples are: refused, past its deadline, or its worker is gone and nobody can take
  // it.
  virtual void OnFailed(absl::Status status) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_REQUEST_SINK_H_
