// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_
#define QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kv_manager/engine/family_id.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/request_sink.h"
#include "scheduler/moved_request.h"
#include "scheduler/request.h"
#include "scheduler/sequence_group.h"

namespace quire {

// A request on its way from the loop of one worker to the loop of another one.
struct MovingRequest {
  // What the inbox of the loop knows about the request.
  struct Wishes {
    bool is_cancellable = false;  // The caller has not cancelled the request yet.
    // The caller has cancelled it for this reason, and the loop has not seen it yet.
    std::optional<FinishReason> cancelled = std::nullopt;
    std::vector<int> cancelled_samples = {};
  };

  MovedRequest request;
  LiveRequests::Entry live;
  Wishes wishes;
  // The family of its generation if it may continue in any generation of it. Otherwise 0.
  FamilyId family{0};
  bool was_refused = false;    // The scheduler to which it was given has refused it.
  bool is_rebalanced = false;  // It moves only to balance the load.
};

// What a loop says about a request that it wants to give to another loop.
struct MoveWish {
  const SequenceGroup& group;
  bool needs_room = false;     // Only a worker may take the request that has free rows and blocks for it now.
  bool accepts_delay = false;  // See TargetNeeds.
  FamilyId family{0};          // See TargetNeeds.
  bool wants_idle = false;     // See TargetNeeds::is_idle.

  const Request& request() const { return group.request(); }
  // The result borrows `group`.
  TargetNeeds needs() const {
    TargetNeeds needs{.accepts_delay = accepts_delay, .family = family};
    needs.is_idle = wants_idle;
    if (needs_room)
      needs.num_blocks = [&group = group](const CacheGroups& groups) { return group.MaxBlocksToGoOn(groups); };
    return needs;
  }
};

// Returns the index of the first of these requests for which there is another ready worker now, or their number. It
// looks once at the loads of the workers, however many requests there are.
using FindMovableHook = std::function<size_t(absl::Span<const MoveWish> wishes)>;

// The request continues in this generation. If it had another generation before, its sink is told from which positions
// on its samples have other numerics. Returns true if the generation changed.
bool ChangeGeneration(GenerationId generation, MovedRequest* moved, RequestSink* sink);

// Takes a request out of its loop.
using TakeRequest = absl::FunctionRef<MovingRequest()>;
// Looks for another ready worker for a request. When there is one, calls `take` once, gives the request to the loop of
// that worker, and returns true.
using MoveRequestHook = std::function<bool(const MoveWish& wish, TakeRequest take)>;

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MOVING_REQUEST_H_
