// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_INVENTORY_ADOPTION_H_
#define QUIRE_KV_MANAGER_ENGINE_INVENTORY_ADOPTION_H_

#include <cstdint>

#include "base/ids.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/loop_inbox.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/engine/worker_pool.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/worker_link/worker_description.h"
#include "kv_manager/worker_link/worker_inventory.h"

namespace quire {

// The parts of a step loop that continue what another manager has left on its worker. All pointers are borrowed.
struct AdoptingLoop {
  const StepLoopOptions* options;
  const StepLoopHooks* hooks;
  const WorkerDescription* worker;
  GenerationId generation;  // Generation of the worker.
  WorkerPool* pool;
  LoopInbox* inbox;
  LiveRequests* live;
  StepLoopStats* stats;
};

// Continues the requests and keeps the cached blocks of the inventory: asks hooks->restore_request for the stream of
// each request, tells it what the request has become, and gives everything to the scheduler and the block manager. What
// cannot continue loses its rows with the next plan. Requests that were placed here before come after the ones of the
// inventory. Called by the thread of the loop, in the first session with the worker, before any plan.
void AdoptInventory(const AdoptingLoop& loop, const WorkerInventory& inventory, int64_t now_us);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_INVENTORY_ADOPTION_H_
