#ifndef QUIRE_KV_MANAGER_GENERATE_CALL_H_
#define QUIRE_KV_MANAGER_GENERATE_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kv_manager/engine.h"
#include "kv_manager/random_source.h"
#include "kv_manager/request_registry.h"
#include "kv_manager/request_validation.h"
#include "kv_manager/rpc_counts.h"
#include "kv_manager/thread_pool.h"
#include "kv_manager/token_stream.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// What all calls of Generate share. Outlives them.
struct GenerateEnvironment {
  Engine* engine;
  RequestRegistry* registry;
  ThreadPool* output_threads;
  RandomSource* random;
  const Clock* clock;
  RequestLimits limits;
  size_t max_outbox_tokens;
  absl::Duration last_write_timeout;
  RpcCounts* counts;
  std::atomic<uint64_t> next_request_id{1};
};

// One call of Generate: validates, submits, and lets a TokenStream write. It owns itself until gRPC is done with it.
class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                     public ResponseWriter,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  static std::shared_ptr<GenerateCall> New(GenerateEnvironment* environment, grpc::CallbackServerContext* context,
                                           v1::GenerateRequest request);

  // Validates and submits the request, or ends the call. May tokenize a long text. Called once, on any thread.
  void Start();

  // Ends the call instead of Start.
  void Refuse(const absl::Status& status);

  // ResponseWriter.
  void WriteResponse(const v1::GenerateResponse* response) override;
  void LimitWrite() override;
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override;

  // From gRPC. A write is only under way after Start has set stream_, and its submission orders the two; nothing writes
  // stream_ again, so OnWriteDone needs no lock.
  void OnWriteDone(bool ok) override { stream_->OnWritten(ok); }
  void OnCancel() override;
  void OnDone() override { self_.reset(); }

 private:
  GenerateCall(GenerateEnvironment* environment, grpc::CallbackServerContext* context, v1::GenerateRequest request)
      : environment_(environment), context_(context), request_(std::move(request)) {}

  absl::Status MakeStream(Request* request);
  int64_t DeadlineMicros() const;
  bool IsCancelled();
  void CancelUnlessOver();

  GenerateEnvironment* const environment_;
  grpc::CallbackServerContext* const context_;
  const v1::GenerateRequest request_;
  std::shared_ptr<GenerateCall> self_;  // Until OnDone.

  std::mutex mutex_;
  std::shared_ptr<TokenStream> stream_;  // Written under mutex_, once, before the request is submitted.
  bool is_cancelled_ = false;            // Guarded by mutex_.

  std::mutex end_mutex_;  // Not mutex_, because gRPC may call OnCancel while the call is being cancelled.
  bool is_over_ = false;  // EndCall was called: context_ may end at any time. Guarded by end_mutex_.
  grpc::Alarm write_alarm_;
  grpc::ByteBuffer write_;  // The response that is written.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_GENERATE_CALL_H_
