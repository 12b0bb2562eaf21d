// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_STEP_STREAM_H_
#define QUIRE_WORKER_STEP_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "quire/v1/worker.grpc.pb.h"
#include "worker/step_session.h"

namespace quire {

class SessionLoop;

// One Steps stream of gRPC as a session: it passes the plans that it reads to the loop and writes the loop's answers in
// order. Serve creates it. It lives until the stream is done, and the loop and its sender have released it.
// Thread-safe.
class StepStream : public grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse>,
                   public StepSession,
                   public std::enable_shared_from_this<StepStream> {
 public:
  // Starts to serve a stream, which ends with DEADLINE_EXCEEDED when no `open` arrives within `open_timeout`. The
  // stream holds a reference to itself until it is done. `loop` must outlive it.
  static StepStream* Serve(SessionLoop* loop, absl::Duration open_timeout);

  void SendOpened(uint64_t epoch, std::vector<v1::InventoryChunk> inventory) override QUIRE_EXCLUDES(mutex_);
  // Writes the result on the sender of the loop.
  void SendResult(v1::StepResult result) override QUIRE_EXCLUDES(mutex_);
  void SendDraining() override;
  void End(const absl::Status& status) override QUIRE_EXCLUDES(mutex_);

 private:
  explicit StepStream(SessionLoop* loop);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override QUIRE_EXCLUDES(mutex_);
  void OnCancel() override QUIRE_EXCLUDES(mutex_);
  void OnDone() override;

  void EndUnlessOpen(absl::Duration open_timeout) QUIRE_EXCLUDES(mutex_);

  // What the stream does with messages and answers that come now.
  enum class Phase {
    kExpectsOpen,  // No `open` was read yet.
    kOpen,
    kEnding,  // end_status_ is set. New answers are dropped. Finish is called after the outbox has been written.
  };
  // Which of gRPC's operations on answers is under way.
  enum class Output {
    kNone,
    kWrite,   // The front of the outbox is being written.
    kFinish,  // Finish was called, so no operation may start any more.
  };

  absl::Status Handle(v1::StepsRequest* request);
  bool ExpectsOpen() QUIRE_EXCLUDES(mutex_);
  absl::Status HandleOpen(const v1::OpenSession& open) QUIRE_EXCLUDES(mutex_);
  void Send(v1::StepsResponse response) QUIRE_EXCLUDES(mutex_);
  // Puts the answer into the outbox. False when it was dropped or there was no room, which ends the stream.
  bool Queue(v1::StepsResponse response) QUIRE_REQUIRES(mutex_);
  void EndWith(const absl::Status& status) QUIRE_REQUIRES(mutex_);
  void WriteNextOrFinish() QUIRE_REQUIRES(mutex_);

  SessionLoop* const loop_;
  ThreadPool* const sender_;
  std::shared_ptr<StepStream> self_;  // Keeps the stream alive until OnDone.
  v1::StepsRequest request_;          // The message that is being read. Used by read callbacks only.
  grpc::Alarm open_alarm_;            // Rings when `open` has not arrived in time.

  Mutex mutex_;
  Phase phase_ QUIRE_GUARDED_BY(mutex_) = Phase::kExpectsOpen;
  Output output_ QUIRE_GUARDED_BY(mutex_) = Output::kNone;
  std::deque<v1::StepsResponse> outbox_ QUIRE_GUARDED_BY(mutex_);
  size_t num_inventory_chunks_ QUIRE_GUARDED_BY(mutex_) = 0;  // In addition to the limit for the outbox.
  grpc::Status end_status_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_STREAM_H_
