#ifndef QUIRE_KV_MANAGER_ADMIN_BLOCK_WATCH_H_
#define QUIRE_KV_MANAGER_ADMIN_BLOCK_WATCH_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/engine/manager_engine.h"

namespace quire {

// One call of WatchBlocks:
//
//   look: each step loop copies the states of its blocks -> tell: compare with what was told, on a thread of the
//   service -> write the messages one after the other -> sleep -> look
//
// One of these is under way at a time, so there is never more than one message per worker, however slow the reader. It
// owns itself until gRPC is done with it.
class BlockWatch : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  struct Environment {
    ManagerEngine* engine;
    ThreadPool* threads;
    std::atomic<int>* num_watches;  // Counts this one until it is gone.
  };

  // Of this worker, or of all when it is empty. All of `environment` outlives the call.
  BlockWatch(const Environment& environment, grpc::CallbackServerContext* context, std::string worker,
             int64_t interval_ms);

  // Begins; or ends the call instead. Once.
  void Start();
  void Refuse(const absl::Status& status) { End(status); }

  // From gRPC.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Worker {
    BlockLook told;  // By the last message.
    BlockLook now;   // Written by its step loop during a look.
  };
  struct Round;  // A look under way.

  void Look();
  void Tell(const absl::Status& status);
  void WriteOrSleep();
  void End(const absl::Status& status);

  const Environment environment_;
  grpc::CallbackServerContext* const context_;
  const std::string worker_;
  const int64_t interval_ms_;
  std::map<std::string, Worker> workers_;  // By address. Used by whatever is under way, as messages_.
  std::deque<grpc::ByteBuffer> messages_;  // To be written; the front is being written.

  std::mutex mutex_;
  bool is_cancelled_ = false;           // Guarded by mutex_, as alarm_.
  std::unique_ptr<grpc::Alarm> alarm_;  // A new one each time: the last one's callback may still be returning.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_BLOCK_WATCH_H_
