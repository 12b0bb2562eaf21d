// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_WORKER_CALLS_H_
#define QUIRE_KV_MANAGER_ADMIN_WORKER_CALLS_H_

#include <memory>

#include "kv_manager/admin/admin_call.h"
#include "kv_manager/admin/loop_asker.h"
#include "quire/v1/admin.pb.h"

namespace quire {

// Drain, Undrain and FlushPrefixCache: take a worker out of service or back, and empty its prefix cache. Thread-safe.
class WorkerCalls {
 public:
  // Borrowed.
  explicit WorkerCalls(LoopAsker* asker) : asker_(asker) {}

  void Drain(const v1::DrainRequest& request, const AdminCall& call);
  void Undrain(const v1::UndrainRequest& request, const AdminCall& call);
  void FlushPrefixCache(const v1::FlushPrefixCacheRequest& request, const AdminCall& call);

 private:
  class Flush;  // One flush under way.

  void FreeNextSlice(const std::shared_ptr<Flush>& flush);

  LoopAsker* const asker_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_WORKER_CALLS_H_
