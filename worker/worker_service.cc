#include "worker/worker_service.h"

#include <utility>

#include "worker/step_stream.h"

namespace quire {

WorkerService::WorkerService(v1::DescribeResponse description, SessionLoop* loop)
    : description_(std::move(description)), loop_(loop) {}

grpc::ServerUnaryReactor* WorkerService::Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest*,
                                                  v1::DescribeResponse* response) {
  *response = description_;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse>* WorkerService::Steps(grpc::CallbackServerContext*) {
  return StepStream::Serve(loop_);
}

}  // namespace quire
