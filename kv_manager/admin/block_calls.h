// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_BLOCK_CALLS_H_
#define QUIRE_KV_MANAGER_ADMIN_BLOCK_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>

#include "kv_manager/admin/admin_call.h"
#include "kv_manager/admin/loop_asker.h"
#include "kv_manager/requests/request_environment.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

inline constexpr uint32_t kDefaultWatchIntervalMs = 500;
inline constexpr uint32_t kMinWatchIntervalMs = 100;
inline constexpr uint32_t kMaxWatchIntervalMs = 60'000;
inline constexpr int kMaxWatches = 16;

// WatchBlocks and DescribeBlock: the state of all KV blocks as it changes, and the holders of one block. Thread-safe.
class BlockCalls {
 public:
  // Both are borrowed.
  BlockCalls(LoopAsker* asker, RequestEnvironment* requests) : asker_(asker), requests_(requests) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* WatchBlocks(grpc::CallbackServerContext* context);
  void DescribeBlock(const v1::DescribeBlockRequest& request, const AdminCall& call);

 private:
  LoopAsker* const asker_;
  RequestEnvironment* const requests_;
  std::atomic<int> num_watches_ = 0;  // Calls of WatchBlocks that have started.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_BLOCK_CALLS_H_
