// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_CLIENT_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/worker_link/worker_description.h"
#include "kv_manager/worker_link/worker_inventory.h"
#include "scheduler/step_plan.h"

namespace quire {

// One rank of a worker, for operators.
struct RankState {
  std::string address = "";
  bool is_ready = false;        // It has joined the session of the group.
  bool is_refused = false;      // It refuses the session. See last_error.
  std::string last_error = "";  // Why it has ended the last attempt or session. Empty: it has not.
  std::string device = "";      // Empty: it has not described itself.
};

// By rank. Null for a worker with a whole model.
using RankStates = std::shared_ptr<const std::vector<RankState>>;

// The ranks that run a session together, see v1::SessionGroup.
struct SessionGroup {
  std::vector<std::string> transport_addresses;  // By rank.
  std::string key;                               // Random bytes.
};

// The connection of one step loop to its worker. Every call and every answer names its attempt by the epoch. So an
// answer from an attempt that was given up is recognised and dropped. No call waits.
class WorkerClient {
 public:
  // Receives the worker's answers on a thread of the client. An implementation must only queue them and return.
  class Listener {
   public:
    virtual ~Listener() = default;

    // The answer to Describe.
    virtual void OnDescribed(uint64_t epoch, WorkerDescription description) = 0;
    // The answer to Open. Plans may follow. `inventory` is what an earlier session has left, if the new one adopts it
    // and there is something; otherwise null.
    virtual void OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) = 0;
    // The answer to a plan. Answers come in the order of the plans, and each fits its plan. The worker was busy with
    // the plan for `duration_us`.
    virtual void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) = 0;
    // The worker was told to stop and wants no new requests. Plans continue as before.
    virtual void OnDraining(uint64_t epoch) = 0;
    // The answer to Probe.
    virtual void OnProbed(uint64_t epoch) = 0;
    // The attempt or session is over, for whatever reason. Nothing follows for this epoch.
    virtual void OnLost(uint64_t epoch, absl::Status reason) = 0;
  };

  // The listener is not called after the destructor has returned.
  virtual ~WorkerClient() = default;

  virtual void SetListener(Listener* listener) = 0;  // Called before any other function.

  // Asks the worker for its constants.
  virtual void Describe(uint64_t epoch) = 0;
  // Opens the session of this epoch. REQUIRES: the worker has described itself in this attempt. `epoch` replaces the
  // epoch of the attempt and is not smaller. With `adopts`, the session takes over what an earlier one has left.
  virtual void Open(uint64_t epoch, bool adopts) = 0;
  // The next session is one of these ranks together, of which this worker is one. Only a rank has more to do.
  virtual void SetGroup(const SessionGroup& /*group*/) {}
  // Tells the worker that this manager will not use it, and why. There is no answer.
  virtual void Refuse(const std::string& reason) = 0;
  // Sends a plan. Does nothing after a loss that the caller does not know of yet. REQUIRES: the session was opened.
  virtual void Send(const StepPlan& plan) = 0;
  // Asks whether the process of the worker still answers, whatever its device does. There may be no answer; a probe
  // that comes while another one waits for its answer may be left out. REQUIRES: the session of this epoch was opened.
  virtual void Probe(uint64_t epoch) = 0;
  // Gives up the current attempt or session, if there is one.
  virtual void Close() = 0;
  // What is known of the ranks of the worker. Any thread may call it.
  virtual RankStates ranks() const { return nullptr; }
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_CLIENT_H_
