#ifndef QUIRE_KV_MANAGER_ENGINE_ENGINE_H_
#define QUIRE_KV_MANAGER_ENGINE_ENGINE_H_

#include <memory>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/served_model.h"
#include "scheduler/request.h"

namespace quire {

// Runs requests on workers: what the services see of everything below them. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;

  // Places the request on a worker and queues it there; when all are lost, on one that may still return. On error
  // nothing has changed and the sink is not called: UNAVAILABLE when there is no such worker or the manager is
  // draining, RESOURCE_EXHAUSTED when the inbox is full.
  // A request that the worker's scheduler refuses ends by OnFailed with the scheduler's status.
  virtual absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) = 0;

  // Ends the request without another event once it returns to its loop; its blocks are free in the next plan. Unknown
  // ids are left alone: the request may just have finished. `reason` is what the ended one is counted under:
  // kCancelled, or kStopToken when the caller has found a stop string in its tokens.
  virtual void Cancel(RequestId request, FinishReason reason) = 0;

  // The same for one sample of the request, which has others that go on. Not for beams.
  virtual void CancelSample(RequestId request, int sample_index) = 0;

  // Null until the first worker has joined; never changes afterwards.
  virtual std::shared_ptr<const ServedModel> model() const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_ENGINE_H_
