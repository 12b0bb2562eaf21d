#ifndef QUIRE_WORKER_WORKER_SERVICE_H_
#define QUIRE_WORKER_WORKER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "quire/v1/worker.grpc.pb.h"
#include "worker/session_loop.h"

namespace quire {

// WorkerService on gRPC's callback API: answers Describe from a constant and hands Steps streams to the loop.
class WorkerService : public v1::WorkerService::CallbackService {
 public:
  // `loop` must outlive the server that the service is registered with.
  WorkerService(v1::DescribeResponse description, SessionLoop* loop);

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest* request,
                                     v1::DescribeResponse* response) override;
  grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse>* Steps(grpc::CallbackServerContext* context) override;

 private:
  const v1::DescribeResponse description_;
  SessionLoop* const loop_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_SERVICE_H_
