// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_ENGINE_H_
#define QUIRE_KV_MANAGER_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/served_model.h"
#include "scheduler/request.h"

namespace quire {

// Runs requests on workers. It is the interface between the services and everything below them. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;

  // Places the request on a worker of its generation and queues it there. When all workers of the served generation are
  // lost, it is placed on one that may still return. On error nothing has changed and the sink is not called:
  // UNAVAILABLE when there is no such worker or the manager is draining, RESOURCE_EXHAUSTED when the inbox is full,
  // when the tenant has reached a limit (TENANT_LIMIT), or when the request would wait too long or end too late
  // (OVERLOADED). When the worker's scheduler refuses the request,
  // its sink gets OnFailed with the scheduler's status.
  virtual absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) = 0;

  // Ends the request without another event when its loop handles the call; its blocks are free in the next plan. An
  // unknown id is ignored, because the request may just have finished. The request is counted under `reason`:
  // kCancelled, or kStopToken when the caller has found a stop string in its tokens.
  virtual void Cancel(RequestId request, FinishReason reason) = 0;

  // The same for one sample of the request, while other samples continue. Not for beams. REQUIRES: called at most once
  // for each sample.
  virtual void CancelSample(RequestId request, int sample_index) = 0;

  // The model of the generation that new requests are for: the newest generation with a worker that is ready. When no
  // worker is ready, the newest with a worker that may return, else the newest. Returns null until the first worker has
  // joined. A call must use one model from its beginning to its end.
  virtual std::shared_ptr<const ServedModel> model() const = 0;

  // The number of tokens of the longest sequence for which a ready worker of this generation has enough blocks. 0 when
  // no worker is ready.
  virtual int64_t LongestSequence(GenerationId generation) const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_ENGINE_H_
