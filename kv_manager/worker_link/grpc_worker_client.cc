// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/grpc_worker_client.h"

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "kv_manager/worker_link/inventory_reader.h"
#include "kv_manager/worker_link/wire.h"
#include "kv_manager/worker_link/worker_address.h"

namespace quire {
namespace {

// gRPC reconnects by itself. A call that comes while gRPC waits for its next attempt fails at once, so these waits are
// shorter than the waits of WorkerLink, which decides how often to try.
constexpr int kReconnectMs = 100;
// The limit for one attempt to connect.
constexpr int kConnectMs = 2000;

// A server that shuts down ends its calls with CANCELLED and no reason. Nobody hears of the calls that this client
// cancels itself. The ErrorInfo of the worker becomes the reason of the status.
absl::Status ToAbsl(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError("the worker has ended the session, as it does when it stops");
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError("what answers there is not a worker; is it a manager?");
  }
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const bool is_silent = status.error_message().empty();
  absl::Status result(code, is_silent ? absl::StatusCodeToString(code) : status.error_message());
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& detail : details.details()) {
    if (!detail.Is<google::rpc::ErrorInfo>() || !detail.UnpackTo(&info)) continue;
    result = WithReason(std::move(result), info.reason(), {info.metadata().begin(), info.metadata().end()});
  }
  return result;
}

}  // namespace

grpc::ChannelArguments WorkerChannelArguments(const GrpcWorkerClientOptions& options) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxWorkerMessageBytes);
  args.SetMaxSendMessageSize(kMaxWorkerMessageBytes);
  if (!absl::StartsWith(options.address, kUnixPrefix)) {
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_time_ms);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_ms);
    args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // A long prefill sends nothing; keep probing.
  }
  if (!options.certificate_name.empty()) args.SetSslTargetNameOverride(options.certificate_name);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return args;
}

void GrpcWorkerClient::PendingCalls::Add() {
  const MutexLock lock(&mutex_);
  ++count_;
}

void GrpcWorkerClient::PendingCalls::Remove() {
  const MutexLock lock(&mutex_);
  if (--count_ == 0) none_.NotifyAll();
}

void GrpcWorkerClient::PendingCalls::WaitForNone() {
  const MutexLock lock(&mutex_);
  while (count_ > 0) none_.Wait(&mutex_);
}

struct GrpcWorkerClient::DescribeCall {
  explicit DescribeCall(uint64_t epoch) : epoch(epoch) {}

  const uint64_t epoch;
  grpc::ClientContext context;
  v1::DescribeRequest request;
  v1::DescribeResponse response;
};

struct GrpcWorkerClient::RefuseCall {
  grpc::ClientContext context;
  v1::RefuseRequest request;
  v1::RefuseResponse response;
};

struct GrpcWorkerClient::ProbeCall {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
};

// One Steps stream. gRPC allows one read and one write at a time; plans queue up while a write is under way, which are
// never more than the plans in flight. Deletes itself when gRPC is done with it.
class GrpcWorkerClient::Session : public grpc::ClientBidiReactor<v1::StepsRequest, v1::StepsResponse> {
 public:
  Session(GrpcWorkerClient* client, uint64_t epoch, bool adopts, const WorkerDescription& worker,
          const SessionGroup& group)
      : client_(client),
        epoch_(epoch),
        adopts_(adopts),
        group_(group),
        rank_(worker.place.rank),
        vocab_size_(worker.vocab_size),
        embedding_size_(worker.pooling.embedding_size),
        reader_(worker),
        encoder_(rank_ > 0 ? PlanEncoder::Answers::kDigests : PlanEncoder::Answers::kResults, worker.groups) {}

  void Start() {
    client_->stub_->async()->Steps(&context_, this);
    AddHold();  // Writes start outside of gRPC's threads until the last read has ended.
    StartRead(&response_);
    const MutexLock lock(&mutex_);
    std::unique_ptr<v1::StepsRequest> request = NewRequest();
    request->mutable_open()->set_epoch(epoch_);
    request->mutable_open()->set_adopt(adopts_);
    request->mutable_open()->set_term(client_->options_.term);
    request->mutable_open()->set_accepts_failures(true);
    request->mutable_open()->set_accepts_postponed(true);
    if (!group_.transport_addresses.empty()) {
      v1::SessionGroup* const group = request->mutable_open()->mutable_group();
      for (const std::string& address : group_.transport_addresses) group->add_transport_addresses(address);
      group->set_key(group_.key);
    }
    Write(std::move(request));
    StartCall();
  }

  void Send(const StepPlan& plan) {
    const MutexLock lock(&mutex_);
    if (reads_ended_) return;
    std::unique_ptr<v1::StepsRequest> request = NewRequest();
    expected_.push_back(encoder_.Encode(plan, request->mutable_plan()));
    Write(std::move(request));
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      error_ = Take(response_);
      if (error_.ok()) return StartRead(&response_);
      context_.TryCancel();
    }
    const MutexLock lock(&mutex_);
    reads_ended_ = true;
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(&mutex_);
    unused_.push_back(std::move(writes_.front()));
    writes_.pop_front();
    if (ok && !reads_ended_ && !writes_.empty()) StartWrite(writes_.front().get());
  }

  void OnDone(const grpc::Status& status) override {
    if (error_.ok()) error_ = status.ok() ? absl::UnavailableError("the worker ended the session") : ToAbsl(status);
    {
      const MutexLock lock(&client_->mutex_);
      if (client_->session_ == this) client_->session_ = nullptr;
    }
    client_->listener_->OnLost(epoch_, std::move(error_));
    PendingCalls& pending = client_->pending_;
    delete this;
    pending.Remove();
  }

 private:
  absl::Status Take(const v1::StepsResponse& response) {
    if (response.has_result()) return TakeResult(response.result());
    if (is_open_ && response.has_draining()) {
      client_->listener_->OnDraining(epoch_);
      return absl::OkStatus();
    }
    if (response.has_inventory() && is_reading_inventory_) return TakeInventory(response.inventory());
    if (is_open_ || is_reading_inventory_ || !response.has_opened())
      return absl::InternalError("the worker sent an unexpected message in place of an answer");
    if (response.opened().epoch() != epoch_) {
      return absl::InternalError(
          absl::StrCat("the worker opened epoch ", response.opened().epoch(), " instead of epoch ", epoch_));
    }
    if (response.opened().inventory_follows()) {
      if (!adopts_) return absl::InternalError("the worker sends an inventory that nobody has asked for");
      is_reading_inventory_ = true;
      return absl::OkStatus();
    }
    is_open_ = true;
    client_->listener_->OnOpened(epoch_, nullptr);
    return absl::OkStatus();
  }

  absl::Status TakeInventory(const v1::InventoryChunk& chunk) {
    QUIRE_RETURN_IF_ERROR(reader_.Add(chunk));
    if (!reader_.is_complete()) return absl::OkStatus();
    auto inventory = std::make_unique<WorkerInventory>(reader_.Take());
    {
      const MutexLock lock(&mutex_);
      for (const WorkerInventory::Row& row : inventory->rows) encoder_.AdoptRow(row);
    }
    is_reading_inventory_ = false;
    is_open_ = true;
    client_->listener_->OnOpened(epoch_, std::move(inventory));
    return absl::OkStatus();
  }

  absl::Status TakeResult(const v1::StepResult& result) {
    ExpectedResult expected;
    {
      const MutexLock lock(&mutex_);
      if (expected_.empty()) {
        return absl::InternalError(
            absl::StrCat("the worker answered step ", result.step(), ", but no plan is in flight"));
      }
      expected = std::move(expected_.front());
      expected_.pop_front();
    }
    absl::StatusOr<StepResult> decoded =
        rank_ > 0 ? DecodeRankResult(result, expected.step)
                  : DecodeStepResult(result, std::move(expected), vocab_size_, embedding_size_);
    if (!decoded.ok()) return decoded.status();
    client_->listener_->OnResult(epoch_, *std::move(decoded), result.duration_us());
    return absl::OkStatus();
  }

  // A message to write. It is the message of an earlier write if there is one, because that owns enough memory.
  std::unique_ptr<v1::StepsRequest> NewRequest() QUIRE_REQUIRES(mutex_) {
    if (unused_.empty()) return std::make_unique<v1::StepsRequest>();
    std::unique_ptr<v1::StepsRequest> request = std::move(unused_.back());
    unused_.pop_back();
    return request;
  }

  void Write(std::unique_ptr<v1::StepsRequest> request) QUIRE_REQUIRES(mutex_) {
    writes_.push_back(std::move(request));
    if (writes_.size() == 1) StartWrite(writes_.front().get());
  }

  GrpcWorkerClient* const client_;
  const uint64_t epoch_;
  const bool adopts_;
  const SessionGroup group_;
  const int rank_;
  const int vocab_size_;
  const int embedding_size_;
  grpc::ClientContext context_;

  // Used by gRPC's reading callbacks, one at a time.
  v1::StepsResponse response_;
  InventoryReader reader_;
  bool is_reading_inventory_ = false;
  bool is_open_ = false;
  absl::Status error_;  // The worker did this wrong.

  Mutex mutex_;
  PlanEncoder encoder_ QUIRE_GUARDED_BY(mutex_);
  std::deque<ExpectedResult> expected_ QUIRE_GUARDED_BY(mutex_);  // For the plans in flight, oldest first.
  // The first message is being written.
  std::deque<std::unique_ptr<v1::StepsRequest>> writes_ QUIRE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<v1::StepsRequest>> unused_ QUIRE_GUARDED_BY(mutex_);
  bool reads_ended_ QUIRE_GUARDED_BY(mutex_) = false;
};

GrpcWorkerClient::GrpcWorkerClient(const GrpcWorkerClientOptions& options)
    : options_(options),
      channel_(grpc::CreateCustomChannel(options.address, options.credentials, WorkerChannelArguments(options))),
      stub_(v1::WorkerService::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

GrpcWorkerClient::~GrpcWorkerClient() {
  Close();
  {
    const MutexLock lock(&mutex_);
    is_ending_ = true;
    if (refuse_call_ != nullptr) refuse_call_->context.TryCancel();
    if (probe_call_ != nullptr) probe_call_->context.TryCancel();
  }
  pending_.WaitForNone();
}

void GrpcWorkerClient::Describe(uint64_t epoch) {
  auto* call = new DescribeCall(epoch);
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::milliseconds(options_.describe_timeout_ms));
  pending_.Add();
  {
    const MutexLock lock(&mutex_);
    describe_call_ = call;
  }
  stub_->async()->Describe(&call->context, &call->request, &call->response, [this, call](const grpc::Status& status) {
    OnDescribeDone(*call, status);
    delete call;
    pending_.Remove();
  });
}

void GrpcWorkerClient::OnDescribeDone(const DescribeCall& call, const grpc::Status& status) {
  absl::StatusOr<WorkerDescription> description =
      status.ok() ? DecodeDescription(call.response) : absl::StatusOr<WorkerDescription>(ToAbsl(status));
  {
    const MutexLock lock(&mutex_);
    if (describe_call_ == &call) {
      describe_call_ = nullptr;
      if (description.ok()) {
        description_ = *description;
        description_.tokenizer_files.clear();
      }
    }
  }
  if (status.ok() && !description.ok()) Refuse(std::string(description.status().message()));
  if (description.ok()) {
    listener_->OnDescribed(call.epoch, *std::move(description));
  } else {
    listener_->OnLost(call.epoch, description.status());
  }
}

// A worker that does not answer gets no second call. An older worker, which does not know the call, stays ready.
void GrpcWorkerClient::Refuse(const std::string& reason) {
  auto call = std::make_unique<RefuseCall>();
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::milliseconds(options_.describe_timeout_ms));
  call->request.set_reason(reason);
  {
    const MutexLock lock(&mutex_);
    if (refuse_call_ != nullptr || is_ending_) return;
    refuse_call_ = call.get();
    pending_.Add();
  }
  RefuseCall* const sent = call.release();
  stub_->async()->Refuse(&sent->context, &sent->request, &sent->response, [this, sent](const grpc::Status&) {
    {
      const MutexLock lock(&mutex_);
      refuse_call_ = nullptr;
    }
    delete sent;
    pending_.Remove();
  });
}

void GrpcWorkerClient::Open(uint64_t epoch, bool adopts) {
  const MutexLock lock(&mutex_);
  QUIRE_CHECK(session_ == nullptr);
  pending_.Add();
  session_ = new Session(this, epoch, adopts, description_, group_);
  session_->Start();
}

void GrpcWorkerClient::SetGroup(const SessionGroup& group) {
  const MutexLock lock(&mutex_);
  group_ = group;
}

void GrpcWorkerClient::Send(const StepPlan& plan) {
  const MutexLock lock(&mutex_);
  if (session_ != nullptr) session_->Send(plan);
}

void GrpcWorkerClient::Probe(uint64_t epoch) {
  auto call = std::make_unique<ProbeCall>();
  call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(options_.probe_timeout_ms));
  {
    const MutexLock lock(&mutex_);
    if (probe_call_ != nullptr || is_ending_) return;
    probe_call_ = call.get();
    pending_.Add();
  }
  ProbeCall* const sent = call.release();
  health_->async()->Check(&sent->context, &sent->request, &sent->response,
                          [this, sent, epoch](const grpc::Status& status) {
                            {
                              const MutexLock lock(&mutex_);
                              probe_call_ = nullptr;
                            }
                            delete sent;
                            // gRPC itself makes these statuses when nothing comes from the worker.
                            const bool is_answered = status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED &&
                                                     status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                                                     status.error_code() != grpc::StatusCode::CANCELLED;
                            if (is_answered) listener_->OnProbed(epoch);
                            pending_.Remove();
                          });
}

void GrpcWorkerClient::Close() {
  const MutexLock lock(&mutex_);
  if (describe_call_ != nullptr) describe_call_->context.TryCancel();
  describe_call_ = nullptr;
  if (session_ != nullptr) session_->Cancel();
  session_ = nullptr;
}

}  // namespace quire
