#ifndef QUIRE_KV_MANAGER_INFERENCE_GENERATE_BATCH_CALL_H_
#define QUIRE_KV_MANAGER_INFERENCE_GENERATE_BATCH_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kv_manager/inference/call_canceller.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"
#include "security/authorizer.h"

namespace quire {

// One call of GenerateBatch: many ClientRequests whose responses share the messages of one stream.
//
// The text jobs of all its requests run one after the other, in one job of a text thread that takes what is there until
// there is no more; then what they have brought goes out as one message. So the tokens of a step, which come together,
// leave together, and what comes while a message is written gathers for the next. A request has one response on its way
// at a time, as in a call of its own: what waits is bounded by the number of requests and by the outbox of each. Ends
// that the client does not read are bounded too: at max_batch_requests nothing is read from the client.
//
// Owns itself until gRPC is done with it. Thread-safe.
class GenerateBatchCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public std::enable_shared_from_this<GenerateBatchCall> {
 public:
  static GenerateBatchCall* New(GenerateEnvironment* environment, grpc::CallbackServerContext* context);

  // From gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override {
    canceller_.OnDone();
    self_.reset();
  }

 private:
  class Member;
  using Members = std::vector<std::shared_ptr<Member>>;

  // A message to the client.
  struct Message {
    v1::GenerateBatchResponse response;
    size_t num_bytes = 0;  // About.
    size_t num_ends = 0;
    Members authors;  // Of its responses; they wait until it is written.
    Members ended;    // Those whose ends it has, kept until then.
  };

  GenerateBatchCall(GenerateEnvironment* environment, grpc::CallbackServerContext* context)
      : environment_(environment),
        context_(context),
        caller_(CallerOf(*context, environment->tokens)),
        parent_(TraceParentOf(*context)),
        canceller_(context) {}

  // --- What the client sends.
  // An error when it concerns the whole stream.
  absl::Status Handle(const grpc::ByteBuffer& bytes);
  void Start(uint64_t tag, v1::GenerateRequest request, int64_t deadline_us);
  void Cancel(uint64_t tag);
  // Ends a request that has not begun. When one of its tag runs, the client learns that instead.
  void Refuse(uint64_t tag, const absl::Status& status);
  int64_t RequestDeadlineMicros(const v1::GenerateBatchRequest& message) const;

  // --- What the requests say.
  void RunLater(std::function<void()> job);
  void RunJobs();
  void AddResponse(std::shared_ptr<Member> member, v1::GenerateBatchEntry entry);
  // The request is over; `entry` has its last response, if there is one.
  void End(v1::GenerateBatchEntry entry, const absl::Status& status);
  void AddEnd(v1::GenerateBatchEntry entry, const absl::Status& status);  // REQUIRES: mutex_ is held.
  // RESOURCE_EXHAUSTED when the entry does not even fit into a message alone.
  absl::Status CheckSize(const v1::GenerateBatchEntry& entry) const;
  // A client that does not read the end of a request for last_write_timeout loses the call.
  void LimitWrites();

  // --- What the client gets.
  // REQUIRES: mutex_ is held.
  Message& Add(v1::GenerateBatchEntry entry);
  // Writes the next message, unless there is none or this will be called again anyway.
  void Flush();

  // --- The end.
  void CancelAll();
  void FinishIfDone();
  void SetAlarm(absl::Duration delay);  // REQUIRES: mutex_ is held.
  void OnAlarm();

  GenerateEnvironment* const environment_;
  grpc::CallbackServerContext* const context_;
  const std::optional<Caller> caller_;       // Of all its requests.
  const std::optional<TraceParent> parent_;  // Likewise; each has a span of its own.
  CallCanceller canceller_;
  std::shared_ptr<GenerateBatchCall> self_;  // Until OnDone.
  grpc::ByteBuffer read_;                    // Used by whoever reads, and handles what was read.
  grpc::ByteBuffer write_;                   // Used by whoever made is_writing_ true, as written_.
  Message written_;                          // What is being written.

  std::mutex mutex_;  // Guards the rest. Not held while a request or the reactor is called.
  absl::flat_hash_map<uint64_t, std::shared_ptr<Member>> running_;  // By tag.
  std::vector<std::function<void()>> jobs_;
  bool is_running_jobs_ = false;
  std::deque<Message> messages_;  // That wait.
  size_t num_unread_ends_ = 0;    // In them and in written_.
  bool is_writing_ = false;
  int64_t write_start_us_ = 0;   // Of the write under way.
  bool is_read_paused_ = false;  // Too many ends are unread.
  bool is_read_over_ = false;    // The client has half-closed or left, or has sent nonsense.
  bool is_cancelled_ = false;    // Nothing is written any more.
  bool has_alarm_ = false;       // The alarm is set. It goes on as long as something is written.
  bool is_over_ = false;         // Finish was called, or will be at once.
  absl::Status status_;          // Of the stream.
  std::unique_ptr<grpc::Alarm> alarm_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_INFERENCE_GENERATE_BATCH_CALL_H_
