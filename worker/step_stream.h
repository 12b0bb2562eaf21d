#ifndef QUIRE_WORKER_STEP_STREAM_H_
#define QUIRE_WORKER_STEP_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "quire/v1/worker.grpc.pb.h"

namespace quire {

class SessionLoop;

// One Steps stream: reads plans into the loop, writes what the loop answers, in order. Created by Serve, lives until
// both the stream is done and the loop has let go of it. Thread-safe.
class StepStream : public grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse> {
 public:
  // Starts to serve a stream, which ends with DEADLINE_EXCEEDED when no `open` comes within `open_timeout`. The
  // stream's reference to itself goes when the stream is done. `loop` must outlive it.
  static StepStream* Serve(SessionLoop* loop, absl::Duration open_timeout);

  // Called by the loop. After the stream has ended they do nothing.
  void SendOpened(uint64_t epoch);
  void SendResult(v1::StepResult result);
  void SendDraining();
  // The stream ends with `status` once everything sent before is written.
  void End(const absl::Status& status);

 private:
  explicit StepStream(SessionLoop* loop) : loop_(loop) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void EndUnlessOpen(absl::Duration open_timeout);

  absl::Status Handle(v1::StepsRequest* request);
  absl::Status HandleOpen(uint64_t epoch);
  void Send(v1::StepsResponse response);
  // REQUIRES: mutex_ is held.
  void WriteNextOrFinish();

  SessionLoop* const loop_;
  std::shared_ptr<StepStream> self_;  // Keeps the session alive until OnDone.
  v1::StepsRequest request_;          // Of the read under way; touched by read callbacks only.
  grpc::Alarm open_alarm_;            // For the time in which `open` must come.

  std::mutex mutex_;
  // Guarded by mutex_.
  bool is_open_ = false;                  // An `open` was read; changed by read callbacks only.
  std::deque<v1::StepsResponse> outbox_;  // The front is being written when is_writing_.
  bool is_writing_ = false;
  bool is_ending_ = false;
  bool is_finished_ = false;  // Finish was called: nothing may be started any more.
  grpc::Status end_status_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_STREAM_H_
