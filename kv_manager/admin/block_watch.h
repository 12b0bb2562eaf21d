// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_BLOCK_WATCH_H_
#define QUIRE_KV_MANAGER_ADMIN_BLOCK_WATCH_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/admin/loop_asker.h"
#include "kv_manager/rpc/received_call.h"

namespace quire {

// One call of WatchBlocks. It repeats these steps:
//
//   1. TakeSnapshot: each step loop copies the states of its blocks.
//   2. Tell: the copies are compared with what was told last. This runs on the thread of the asker.
//   3. The messages are written one after the other.
//   4. The call sleeps.
//
// One step is under way at a time, so there is never more than one message per worker, however slow the reader is. The
// call owns itself until gRPC is done with it.
class BlockWatch : public ReceivedCall {
 public:
  // All are borrowed. `num_watches` counts the calls that have a request, until they are gone.
  BlockWatch(LoopAsker* asker, std::atomic<int>* num_watches, ReceiveWatch* receiving,
             grpc::CallbackServerContext* context);

  // gRPC calls these.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Worker {
    PoolSnapshot told;  // The last message has told it.
    PoolSnapshot now;   // Written by its step loop during TakeSnapshot.
  };
  struct Round;  // A snapshot that is being taken.

  // Begins the watch, or ends the call.
  void OnRequest(const grpc::ByteBuffer& request) override;
  void OnNoRequest(const absl::Status& status) override { End(status); }
  void TakeSnapshot();
  void Tell(const absl::Status& status);
  void WriteOrSleep();
  void StopCounting();
  void End(const absl::Status& status);

  LoopAsker* const asker_;
  std::atomic<int>* const num_watches_;
  bool is_counted_ = false;  // Counted in num_watches_.
  std::string worker_;       // Empty: all of them are watched.
  int64_t interval_ms_ = 0;
  // The step that is under way uses these two.
  std::map<std::string, Worker> workers_;  // The key is the address.
  std::deque<grpc::ByteBuffer> messages_;  // To be written; the front is being written.

  Mutex mutex_;
  bool is_cancelled_ QUIRE_GUARDED_BY(mutex_) = false;
  // A new one for each pause: the callback of the last one may still be returning.
  std::unique_ptr<grpc::Alarm> alarm_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_BLOCK_WATCH_H_
