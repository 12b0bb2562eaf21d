// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_WORKER_SERVICE_H_
#define QUIRE_WORKER_WORKER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>

#include "absl/time/time.h"
#include "quire/v1/worker.grpc.pb.h"
#include "worker/session_loop.h"

namespace quire {

// The time in which `open` must arrive on a Steps stream.
inline constexpr absl::Duration kOpenTimeout = absl::Seconds(10);

// WorkerService on gRPC's callback API. It answers Describe from a constant and passes Steps streams and refusals to
// the loop. It refuses all calls with UNAVAILABLE until Begin, so that the worker can take its port before it loads the
// model, and again when the loop drains. Thread-safe.
class WorkerService : public v1::WorkerService::CallbackService {
 public:
  // `loading`, which may be null, is how far the model is until Begin. It must outlive this object.
  explicit WorkerService(const LoadProgress* loading = nullptr, absl::Duration open_timeout = kOpenTimeout)
      : loading_(loading), open_timeout_(open_timeout) {}

  // Starts to serve. `loop` must outlive the server that the service is registered with. Call it once.
  void Begin(v1::DescribeResponse description, SessionLoop* loop);

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest* request,
                                     v1::DescribeResponse* response) override;
  grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse>* Steps(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const v1::RefuseRequest* request,
                                   v1::RefuseResponse* response) override;

 private:
  grpc::Status StatusOf(const SessionLoop* loop) const;

  const LoadProgress* const loading_;
  const absl::Duration open_timeout_;
  v1::DescribeResponse description_;         // Constant after loop_ is set.
  std::atomic<SessionLoop*> loop_{nullptr};  // Null until Begin.
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_SERVICE_H_
