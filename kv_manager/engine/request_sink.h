// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_REQUEST_SINK_H_
#define QUIRE_KV_MANAGER_ENGINE_REQUEST_SINK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

// Receives the events of one request. The step-loop thread calls it, one call at a time. An implementation must only
// queue the event and return. No event follows OnFailed or the OnFinished that ends the request.
class RequestSink {
 public:
  virtual ~RequestSink() = default;

  // The worker at this address has the request from now on. Another one may get it later.
  virtual void OnPlaced(const std::string& /*worker*/) {}
  // The request runs for the first time. `num_cached_tokens` tokens of its prompt come from the prefix cache.
  virtual void OnStarted(int num_cached_tokens) = 0;
  // The prompt is computed, and this many tokens of it are pinned by each of Request::pins. It comes before any token.
  virtual void OnPinned(std::vector<int> /*num_tokens*/) {}
  // Logprobs of the prompt tokens at positions first_position, first_position + 1, ... They come before any token.
  virtual void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) = 0;
  // The embedding of a request with a pooling. It comes before the one token, which means nothing then.
  virtual void OnEmbedding(std::vector<float> /*values*/) {}
  // The next token of a sample. `position` counts from the start of the prompt. The positions of a sample are
  // consecutive.
  virtual void OnToken(int sample_index, int position, ScoredToken token) = 0;
  // The tokens of a sample from this position on come from a worker with other numerics than those before. It may be
  // told more than once. It comes before the token at the position.
  virtual void OnNumericsChanged(int sample_index, int position) = 0;
  // A sample has ended. With finished.ends_request the whole request has ended.
  virtual void OnFinished(const Finished& finished) = 0;
  // The request ends before all of its samples have ended: it was refused, its deadline has passed, or its worker is
  // gone.
  virtual void OnFailed(absl::Status status) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_REQUEST_SINK_H_
