#ifndef QUIRE_KV_MANAGER_ADMIN_LOOP_LOOK_H_
#define QUIRE_KV_MANAGER_ADMIN_LOOP_LOOK_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/engine/step_loop.h"
#include "kv_manager/engine/table_audit.h"
#include "quire/v1/inspect.pb.h"

// What an operator asks a step loop, answered on its thread: what is quick to copy is copied here, the rest is done
// elsewhere. Requests are known by their numbers; their names are filled in later.

namespace quire {

// The session and the last plan that was made in it. Works for every message that has these fields.
template <typename Message>
void SetMoment(const StepLoop::View& loop, Message* out) {
  out->set_worker(loop.address);
  out->set_epoch(loop.link.epoch());
  out->set_step(loop.link.num_steps() + loop.link.num_plans_in_flight());
}

// The states of all blocks, a byte each, and the moment; only that it is not ready otherwise.
void CopyBlocks(const StepLoop::View& loop, BlockLook* out);

// The answers of several step loops, each of which adds its own on its thread.
template <typename T>
struct Gathered {
  Mutex mutex;
  T all QUIRE_GUARDED_BY(mutex) = {};

  // After the last answer.
  T Take() {
    const MutexLock lock(&mutex);
    return std::move(all);
  }
};

// Some requests without their names.
struct ListedRequests {
  std::vector<std::pair<RequestId, v1::RequestSummary>> requests;
  int num_requests = 0;  // Also beyond those listed.
};

// Adds at most `max_requests`. About half a microsecond for each, and two nanoseconds for each of its blocks.
void ListRequests(const StepLoop::View& loop, int max_requests, ListedRequests* out);

// One request without names, its fork tree not made yet.
struct DescribedRequest {
  v1::DescribeRequestResponse description;
  std::vector<std::vector<BlockId>> tables;             // Of description.sequences.
  std::vector<std::pair<RequestId, int>> sharers = {};  // Others and their different blocks in common.
};

// False when it is none of this loop's.
bool DescribeRequest(const StepLoop::View& loop, RequestId request, DescribedRequest* out);

// One block without names.
struct DescribedBlock {
  v1::DescribeBlockResponse description;
  std::vector<RequestId> owners;  // Of description.owners.
};

// REQUIRES: the worker has joined, `block` is one of its pool.
void DescribeBlock(const StepLoop::View& loop, BlockId block, DescribedBlock* out);

// The difference between what is counted and what is held, repaired if told so.
v1::WorkerAudit AuditBlocks(const StepLoop::View& loop, bool repair);

// Adds what the worker's rows hold to its audit.
void AddTableAudit(const TableAudit& tables, absl::FunctionRef<std::string(RequestId)> name_of, v1::WorkerAudit* audit);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_LOOP_LOOK_H_
