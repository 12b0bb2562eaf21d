#ifndef QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_
#define QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/placement.h"
#include "scheduler/moved_request.h"
#include "scheduler/request.h"

namespace quire {

// A request on its way from the loop of one worker to the loop of another one.
struct MovingRequest {
  // What the inbox of the loop knows about the request.
  struct Wishes {
    bool is_cancellable = false;  // The caller has not cancelled the request yet.
    // What the caller has cancelled and the loop has not seen yet.
    std::optional<FinishReason> cancelled = std::nullopt;
    std::vector<int> cancelled_samples = {};
  };

  MovedRequest request;
  LiveRequests::Entry live;
  Wishes wishes;
};

// What a loop says about a request that it wants to give to another loop.
struct MoveWish {
  const Request& request;
  int64_t num_tokens = 0;   // An upper bound of the tokens whose K and V the request needs to go on.
  bool needs_room = false;  // Only a worker may take the request that has free rows and blocks for it now.
};

// Takes a request out of its loop.
using TakeRequest = absl::FunctionRef<MovingRequest()>;
// Looks for another ready worker for a request. When there is one, calls `take` once and gives the request to the loop
// of that worker.
using MoveRequestHook = std::function<MoveOutcome(const MoveWish& wish, TakeRequest take)>;

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_
