#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_CLIENT_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_CLIENT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kv_manager/worker_link/worker_description.h"
#include "scheduler/step_plan.h"

namespace quire {

// The connection of one step loop to its worker. Every call names the attempt it belongs to by its epoch, and so does
// every answer: what arrives from an attempt that was given up is recognised and dropped. No call waits.
class WorkerClient {
 public:
  // Hears from the worker, on a thread of the client: an implementation only queues and returns.
  class Listener {
   public:
    virtual ~Listener() = default;

    // The answer to Describe.
    virtual void OnDescribed(uint64_t epoch, WorkerDescription description) = 0;
    // The answer to Open: plans may follow.
    virtual void OnOpened(uint64_t epoch) = 0;
    // The answer to a plan, in the order of the plans; it fits the plan. The worker was busy for `duration_us` with it.
    virtual void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) = 0;
    // The worker is told to stop: it wants no new requests. Plans go on as before.
    virtual void OnDraining(uint64_t epoch) = 0;
    // The attempt or session is over, for whatever reason; nothing follows for this epoch.
    virtual void OnLost(uint64_t epoch, absl::Status reason) = 0;
  };

  // After the destructor has returned the listener is not called any more.
  virtual ~WorkerClient() = default;

  virtual void SetListener(Listener* listener) = 0;  // Before any other call.

  // Asks the worker for its constants.
  virtual void Describe(uint64_t epoch) = 0;
  // Opens the session of this epoch. REQUIRES: the worker described itself in this attempt, whose epoch this one
  // replaces; it is not smaller.
  virtual void Open(uint64_t epoch) = 0;
  // Sends a plan. REQUIRES: the session was opened. After a loss that the caller does not know of yet: does nothing.
  virtual void Send(const StepPlan& plan) = 0;
  // Gives up the current attempt or session, if there is one.
  virtual void Close() = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_CLIENT_H_
