// SPDX-License-Identifier: Apache-2.0

#include "worker/worker_service.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/number_text.h"
#include "worker/step_stream.h"

namespace quire {
namespace {

grpc::Status Unavailable(const std::string& why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, why);
}

// Returns how much of the weights has been read, in tenths. The manager logs the text when it changes.
std::string Share(const LoadProgress::Snapshot& loading) {
  if (loading.total_bytes == 0) return "";
  const int64_t tenths = 10 * loading.read_bytes / loading.total_bytes;
  return absl::StrFormat("; %d %% of %s have been read", 10 * tenths, FormatBytes(loading.total_bytes));
}

// Sets the address of the next session.
grpc::Status DescribeTransport(const RankGroup& ranks, v1::DescribeResponse* response) {
  const absl::StatusOr<std::string> address = ranks.TransportAddress();
  if (!address.ok()) return Unavailable(std::string(address.status().message()));
  response->mutable_place()->set_transport_address(*address);
  return grpc::Status::OK;
}

// A stream that ends at once with `status`.
class RefusedStream : public grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

// Returns OK when the worker accepts calls.
grpc::Status WorkerService::StatusOf(const SessionLoop* loop) const {
  if (loop == nullptr) {
    return Unavailable("the worker is loading its model" + (loading_ == nullptr ? "" : Share(loading_->Get())));
  }
  return loop->is_draining() ? Unavailable("the worker is draining") : grpc::Status::OK;
}

void WorkerService::Begin(v1::DescribeResponse description, SessionLoop* loop) {
  description_ = std::move(description);
  loop_ = loop;
}

grpc::ServerUnaryReactor* WorkerService::Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest*,
                                                  v1::DescribeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const SessionLoop* const loop = loop_;
  grpc::Status status = StatusOf(loop);
  if (status.ok() && loop->ranks() != nullptr) status = DescribeTransport(*loop->ranks(), response);
  if (status.ok()) {
    response->MergeFrom(description_);
    response->set_last_epoch(loop->last_epoch());
    response->set_has_session(loop->has_session());
  }
  reactor->Finish(status);
  return reactor;
}

grpc::ServerBidiReactor<v1::StepsRequest, v1::StepsResponse>* WorkerService::Steps(grpc::CallbackServerContext*) {
  SessionLoop* const loop = loop_;
  if (const grpc::Status status = StatusOf(loop); !status.ok()) return new RefusedStream(status);
  return StepStream::Serve(loop, open_timeout_);
}

grpc::ServerUnaryReactor* WorkerService::Refuse(grpc::CallbackServerContext* context, const v1::RefuseRequest* request,
                                                v1::RefuseResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  SessionLoop* const loop = loop_;
  const grpc::Status status = StatusOf(loop);
  if (status.ok()) loop->Refuse(request->reason());
  reactor->Finish(status);
  return reactor;
}

}  // namespace quire
