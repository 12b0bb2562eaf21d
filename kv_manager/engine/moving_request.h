#ifndef QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_
#define QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_

#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kv_manager/engine/live_requests.h"
#include "scheduler/moved_request.h"
#include "scheduler/request.h"

namespace quire {

// A request on its way from the loop of one worker to the loop of another one.
struct MovingRequest {
  // What the inbox of the loop knows about the request.
  struct Wishes {
    bool is_cancellable = false;  // The caller has not cancelled the request yet.
    // What the caller has cancelled and the loop has not seen yet.
    std::optional<FinishReason> cancelled;
    std::vector<int> cancelled_samples;
  };

  MovedRequest request;
  LiveRequests::Entry live;
  Wishes wishes;
};

// Takes a request out of its loop.
using TakeRequest = absl::FunctionRef<MovingRequest()>;

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_
