// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/etcd_lease.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "kv_manager/leadership/candidate_name.h"

namespace quire {
namespace {

// The limits of reconnecting are short, because a lease is.
constexpr int kMinReconnectMs = 100;
constexpr int kMaxReconnectMs = 1000;
// A connection whose packets get lost is replaced after the sum of both. etcd refuses pings that come every 5 seconds.
constexpr int kPingMs = 10'000;
constexpr int kPingTimeoutMs = 3'000;

std::chrono::steady_clock::time_point After(absl::Duration timeout) {
  return std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(endpoint, credentials, arguments);
}

// ABORTED would say that the lease has ended. Only what etcd answers says so, and not gRPC or a proxy.
absl::Status ToAbsl(const grpc::Status& status, absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  return absl::Status(code == absl::StatusCode::kAborted ? absl::StatusCode::kUnavailable : code,
                      absl::StrCat("etcd, ", call, ": ", status.error_message()));
}

// A call waits for a connection, but no longer than until its deadline. The time of day may be set meanwhile.
void Limit(grpc::ClientContext* context, std::chrono::steady_clock::time_point deadline) {
  context->set_deadline(std::chrono::system_clock::now() + (deadline - std::chrono::steady_clock::now()));
  context->set_wait_for_ready(true);
}

}  // namespace

EtcdLease::EtcdLease(const EtcdLeaseOptions& options) : options_(options) {
  for (const std::string& endpoint : options.endpoints) {
    const std::shared_ptr<grpc::Channel> channel = Connect(endpoint, options.credentials);
    members_.push_back({etcdserverpb::KV::NewStub(channel), etcdserverpb::Lease::NewStub(channel)});
  }
}

absl::StatusOr<LeaseHolder> EtcdLease::TryAcquire(absl::Duration timeout) {
  const Deadline deadline = After(timeout);
  QUIRE_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse found, ReadKey(deadline));
  if (found.kvs().empty()) return Acquire(deadline);
  const etcdserverpb::KeyValue& key = found.kvs(0);
  if (lease_id_ == 0 || key.lease() != lease_id_) return LeaseHolder{.address = AddressOf(key.value())};
  // An earlier call has taken the key, but its answer was lost.
  const absl::Status extended = KeepAlive(deadline);
  if (absl::IsAborted(extended)) return LeaseHolder{};
  QUIRE_RETURN_IF_ERROR(extended);
  term_ = static_cast<uint64_t>(key.create_revision());
  return LeaseHolder{.is_me = true, .term = term_, .address = AddressOf(options_.candidate)};
}

absl::StatusOr<LeaseHolder> EtcdLease::Acquire(Deadline deadline) {
  if (lease_id_ == 0) {
    QUIRE_RETURN_IF_ERROR(Grant(deadline));
  } else if (const absl::Status extended = KeepAlive(deadline); !extended.ok()) {
    if (!absl::IsAborted(extended)) return extended;
    QUIRE_RETURN_IF_ERROR(Grant(deadline));
  }
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare* const absent = request.add_compare();
  absent->set_target(etcdserverpb::Compare::CREATE);
  absent->set_key(options_.key);
  absent->set_create_revision(0);
  etcdserverpb::PutRequest* const put = request.add_success()->mutable_request_put();
  put->set_key(options_.key);
  put->set_value(options_.candidate);
  put->set_lease(lease_id_);
  etcdserverpb::TxnResponse response;
  grpc::ClientContext context;
  Limit(&context, deadline);
  QUIRE_RETURN_IF_ERROR(Checked(ToAbsl(member().keys->Txn(&context, request, &response), "Txn")));
  if (!response.succeeded()) return LeaseHolder{};  // Another candidate was faster. The next call reads its name.
  term_ = static_cast<uint64_t>(response.header().revision());
  return LeaseHolder{.is_me = true, .term = term_, .address = AddressOf(options_.candidate)};
}

absl::Status EtcdLease::Renew(absl::Duration timeout) {
  const Deadline deadline = After(timeout);
  QUIRE_RETURN_IF_ERROR(KeepAlive(deadline));
  // An operator may have deleted the key to make another manager lead.
  QUIRE_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse found, ReadKey(deadline));
  if (!found.kvs().empty() && found.kvs(0).lease() == lease_id_ &&
      static_cast<uint64_t>(found.kvs(0).create_revision()) == term_) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat("the key ", options_.key, " in etcd is not this manager's any more"));
}

absl::Status EtcdLease::Release(absl::Duration timeout) {
  return lease_id_ == 0 ? absl::OkStatus() : Revoke(After(timeout));
}

absl::Status EtcdLease::KeepAlive(Deadline deadline) {
  grpc::ClientContext context;
  Limit(&context, deadline);
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease_id_);
  etcdserverpb::LeaseKeepAliveResponse response;
  const auto stream = member().leases->LeaseKeepAlive(&context);
  const bool has_answer = stream->Write(request) && stream->Read(&response);
  stream->WritesDone();
  if (has_answer) context.TryCancel();  // There is nothing more to wait for.
  const grpc::Status end = stream->Finish();
  if (!has_answer) {
    const absl::Status error = ToAbsl(end, "LeaseKeepAlive");
    return Checked(error.ok() ? absl::UnavailableError("etcd, LeaseKeepAlive: the call ended without an answer")
                              : error);
  }
  if (response.ttl() > 0) return absl::OkStatus();
  lease_id_ = 0;
  return absl::AbortedError("the lease in etcd has ended");
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdLease::ReadKey(Deadline deadline) {
  etcdserverpb::RangeRequest request;
  request.set_key(options_.key);
  etcdserverpb::RangeResponse response;
  grpc::ClientContext context;
  Limit(&context, deadline);
  QUIRE_RETURN_IF_ERROR(Checked(ToAbsl(member().keys->Range(&context, request, &response), "Range")));
  return response;
}

absl::Status EtcdLease::Grant(Deadline deadline) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(options_.duration));
  etcdserverpb::LeaseGrantResponse response;
  grpc::ClientContext context;
  Limit(&context, deadline);
  QUIRE_RETURN_IF_ERROR(Checked(ToAbsl(member().leases->LeaseGrant(&context, request, &response), "LeaseGrant")));
  lease_id_ = response.id();
  return absl::OkStatus();
}

absl::Status EtcdLease::Revoke(Deadline deadline) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(std::exchange(lease_id_, 0));
  etcdserverpb::LeaseRevokeResponse response;
  grpc::ClientContext context;
  Limit(&context, deadline);
  return Checked(ToAbsl(member().leases->LeaseRevoke(&context, request, &response), "LeaseRevoke"));
}

absl::Status EtcdLease::Checked(absl::Status status) {
  if (!status.ok()) current_ = (current_ + 1) % members_.size();
  return status;
}

}  // namespace quire
