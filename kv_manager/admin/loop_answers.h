// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_LOOP_ANSWERS_H_
#define QUIRE_KV_MANAGER_ADMIN_LOOP_ANSWERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/engine/loop_view.h"
#include "kv_manager/engine/table_audit.h"
#include "kv_manager/worker_link/worker_link.h"
#include "quire/v1/inspect.pb.h"

// Functions that answer an operator's question on the thread of a step loop. They only copy what is quick to copy; the
// caller does the rest on another thread, and fills in the names of requests, which have only their ids here.

namespace quire {

// Sets the worker, its session and the last plan of that session. Works for every message with these fields.
template <typename Message>
void SetMoment(const LoopView& loop, Message* out) {
  out->set_worker(loop.address);
  out->set_epoch(loop.link.epoch());
  out->set_step(loop.link.num_steps() + loop.link.num_plans_in_flight());
}

// Copies the states of all blocks, one byte each, and the moment. A worker that is not ready only clears is_ready.
void CopyBlocks(const LoopView& loop, PoolSnapshot* out);

// The answers of several step loops, each of which adds its own on its thread.
template <typename T>
struct Gathered {
  Mutex mutex;
  T all QUIRE_GUARDED_BY(mutex) = {};

  // It is called after the last answer.
  T Take() {
    const MutexLock lock(&mutex);
    return std::move(all);
  }
};

// Requests without their names.
struct ListedRequests {
  std::vector<std::pair<RequestId, v1::RequestSummary>> requests;
  int num_requests = 0;  // Includes requests that are not listed.
};

// Adds at most `max_requests`. Takes about half a microsecond per request and two nanoseconds per block.
void ListRequests(const LoopView& loop, int max_requests, ListedRequests* out);

// One request without names and without its fork tree.
struct DescribedRequest {
  v1::DescribeRequestResponse description;
  std::vector<std::vector<BlockId>> tables;             // The index is that in description.sequences.
  std::vector<std::pair<RequestId, int>> sharers = {};  // Other requests, and how many blocks they share.
};

// Returns false when this loop does not have the request.
bool DescribeRequest(const LoopView& loop, RequestId request, DescribedRequest* out);

// One block without the names of its owners.
struct DescribedBlock {
  v1::DescribeBlockResponse description;
  std::vector<RequestId> owners;  // The index is that in description.owners.
};

// REQUIRES: the worker has joined and its pool has `block`.
void DescribeBlock(const LoopView& loop, BlockId block, DescribedBlock* out);

// Compares the reference counts with the references that exist, and corrects the counts if `is_repair_wanted` is true.
v1::WorkerAudit AuditBlocks(const LoopView& loop, bool is_repair_wanted);

// Adds the differences between the block tables of the worker and of the manager to the worker's audit.
void AddTableAudit(const TableAudit& tables, absl::FunctionRef<std::string(RequestId)> name_of, v1::WorkerAudit* audit);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_LOOP_ANSWERS_H_
