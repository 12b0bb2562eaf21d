// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_INFERENCE_GENERATE_BATCH_CALL_H_
#define QUIRE_KV_MANAGER_INFERENCE_GENERATE_BATCH_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "kv_manager/requests/batch_packer.h"
#include "kv_manager/requests/job_queue.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/rpc/call_canceller.h"
#include "quire/v1/inference.pb.h"
#include "security/caller.h"

namespace quire {

// One call of GenerateBatch: many ClientRequests whose responses share the messages of one stream.
//
// The text jobs of all its requests run one after the other (JobQueue), and what they have produced goes out as one
// message (BatchPacker). So the tokens of a step, which come together, leave together, and what comes while a message
// is written gathers for the next one. The first responses of requests do not wait for the tokens of others that come
// behind them, but leave in a message of their own. Each request has one response on its way at a time, as in a call of
// its own, so the number of requests and their outboxes bound what waits. Ends that the client does not read are
// bounded too: at max_batch_requests unread ends, the call reads nothing more from the client.
//
// The messages of a client may be many, and gRPC would call this object with the next one as soon as the last one is
// handled. So input threads of TextThreads handle them, one at a time, and gRPC's threads remain for the other calls.
// Each message costs the client the turns of a call of its own on the connection, see ClientWork.
//
// The call owns itself until gRPC is done with it. Thread-safe.
class GenerateBatchCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public std::enable_shared_from_this<GenerateBatchCall> {
 public:
  static GenerateBatchCall* New(RequestEnvironment* environment, grpc::CallbackServerContext* context);

  // gRPC calls these.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override {
    canceller_.OnDone();
    self_.reset();
  }

 private:
  class Member;

  // Says whether the call reads messages of the client.
  enum class Reading {
    kOn,
    kPaused,  // Too many ends are unread.
    kOver,    // The client has half-closed or left, or has sent a message that cannot be read.
  };

  // Says where the call is in its life.
  enum class Stage {
    kOpen,
    kCancelled,  // Nothing is written any more; the requests are ending.
    kFinished,   // Finish was called, or is about to be.
  };

  GenerateBatchCall(RequestEnvironment* environment, grpc::CallbackServerContext* context);

  // --- What the client sends.
  // Handles the message that was read, and reads the next one. `ok` is false when the client sends no more.
  void HandleRead(bool ok);
  // Returns an error when the message makes the whole stream unusable.
  absl::Status Handle(const grpc::ByteBuffer& bytes);
  void Read();
  // The watch has ended the read.
  void OnReadEnded(const absl::Status& status);
  // The client pays for this work.
  void Charge(ClientWork work);
  bool is_open() const;
  // The name under which the messages take turns.
  std::string Owner();
  // Returns who makes the call now. Its token may have been withdrawn or given to another tenant.
  const absl::StatusOr<std::optional<Caller>>& CurrentCaller();
  // Starts or resumes a request, which was taken out of the message.
  template <typename Request>
  void Start(uint64_t tag, Request request, const v1::GenerateBatchRequest& message);
  // Ends a request that is running.
  void Cancel(uint64_t tag);
  // Ends a request that has not begun. When a request with its tag is running, the client learns that instead.
  void Refuse(uint64_t tag, const absl::Status& status);
  int64_t RequestDeadlineMicros(const v1::GenerateBatchRequest& message) const;

  // --- What the requests say.
  void RunLater(std::function<void()> job);
  // What a request has for the client is about to be added. If this is not the first for its request, first responses
  // that wait are written.
  void BeginEntry(bool is_first);
  void AddResponse(std::shared_ptr<Member> member, v1::GenerateBatchEntry entry);
  // The request is over; `entry` has its last response, if there is one.
  void End(v1::GenerateBatchEntry entry, const absl::Status& status);
  void AddEnd(v1::GenerateBatchEntry entry, const absl::Status& status, BatchPacker::OnWritten on_written)
      QUIRE_REQUIRES(mutex_);
  absl::Status CheckSize(const v1::GenerateBatchEntry& entry) const;
  // From now on a client that does not read the end of a request for last_write_timeout loses the call.
  void LimitWrites();

  // --- What the client gets.
  // Writes the next message, unless there is none or this will be called again anyway.
  void Flush();
  // Writes the next message, unless there is none or a write is under way.
  void Write();

  // Tells the watch of answers how much the client has not read.
  void CountUnread() QUIRE_REQUIRES(mutex_);

  // --- The end.
  void CancelAll();
  void FinishIfDone();
  void SetAlarm(absl::Duration delay) QUIRE_REQUIRES(mutex_);
  void OnAlarm();

  RequestEnvironment* const environment_;
  grpc::CallbackServerContext* const context_;
  const std::string peer_;
  absl::StatusOr<std::optional<Caller>> caller_ = std::nullopt;  // Used like read_.
  uint64_t caller_tables_ = 0;                                   // TokenFile::num_tables() when caller_ was looked up.
  const std::optional<TraceParent>
      parent_;  // The trace of requests that name no other one; each has a span of its own.
  CallCanceller canceller_;
  std::shared_ptr<GenerateBatchCall> self_;  // Set until OnDone.
  grpc::ByteBuffer read_;                    // Used by gRPC's read and by OnReadDone.
  uint64_t read_id_ = 0;                     // Id of the message in the watch. Used like read_.
  grpc::ByteBuffer write_;                   // Used by the write under way.
  JobQueue jobs_;                            // The text jobs of all requests.

  // Not held while a request or the reactor is called.
  mutable Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Member>> running_ QUIRE_GUARDED_BY(mutex_);  // The key is the tag.
  BatchPacker packer_ QUIRE_GUARDED_BY(mutex_);
  bool has_first_ QUIRE_GUARDED_BY(mutex_) = false;      // First responses wait for a write.
  int64_t write_start_us_ QUIRE_GUARDED_BY(mutex_) = 0;  // When the write under way began.
  Reading reading_ QUIRE_GUARDED_BY(mutex_) = Reading::kOn;
  Stage stage_ QUIRE_GUARDED_BY(mutex_) = Stage::kOpen;
  uint64_t answer_id_ QUIRE_GUARDED_BY(mutex_) = 0;  // Id of unread answers in the watch, unless they are small.
  absl::Status status_ QUIRE_GUARDED_BY(mutex_);     // An error that ends the stream.
  std::unique_ptr<grpc::Alarm> alarm_ QUIRE_GUARDED_BY(mutex_);  // Null: not set. Set as long as something is written.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_GENERATE_BATCH_CALL_H_
