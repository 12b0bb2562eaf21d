// SPDX-License-Identifier: Apache-2.0

#include "client/library/call_status.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace quire {

google::rpc::Status RpcStatusOf(const grpc::Status& status) {
  google::rpc::Status result;
  if (!result.ParseFromString(status.error_details())) result.clear_details();
  result.set_code(status.error_code());
  result.set_message(status.error_message());
  return result;
}

bool HasReason(const google::rpc::Status& status, absl::string_view reason) {
  google::rpc::ErrorInfo info;
  return std::any_of(status.details().begin(), status.details().end(), [&](const google::protobuf::Any& detail) {
    return detail.Is<google::rpc::ErrorInfo>() && detail.UnpackTo(&info) && info.reason() == reason;
  });
}

bool HasReason(const grpc::Status& status, absl::string_view reason) {
  return HasReason(RpcStatusOf(status), reason);
}

bool IsRestoring(const google::rpc::Status& status) {
  return HasReason(status, "RESTORING");
}

bool IsRestoring(const grpc::Status& status) {
  return IsRestoring(RpcStatusOf(status));
}

bool IsStandingBy(const google::rpc::Status& status) {
  return status.code() == grpc::StatusCode::UNAVAILABLE && HasReason(status, "NOT_LEADER");
}

bool IsStandingBy(const grpc::Status& status) {
  return IsStandingBy(RpcStatusOf(status));
}

bool IsNotLeading(const google::rpc::Status& status) {
  return IsStandingBy(status) || (status.code() == grpc::StatusCode::UNAVAILABLE && HasReason(status, "DRAINING"));
}

bool IsNotLeading(const grpc::Status& status) {
  return IsNotLeading(RpcStatusOf(status));
}

bool IsOfNoLeader(const google::rpc::Status& status) {
  const bool is_unanswered =
      status.code() == grpc::StatusCode::UNAVAILABLE || status.code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return IsNotLeading(status) || (is_unanswered && status.details().empty());
}

bool IsOfNoLeader(const grpc::Status& status) {
  return IsOfNoLeader(RpcStatusOf(status));
}

bool IsCut(const google::rpc::Status& status) {
  switch (status.code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return status.details().empty() || IsRestoring(status);
    default:
      return false;
  }
}

bool IsCut(const grpc::Status& status) {
  return IsCut(RpcStatusOf(status));
}

bool IsUnreached(const grpc::Status& status) {
  return IsCut(status) && (absl::StrContains(status.error_message(), "failed to connect") ||
                           absl::StrContains(status.error_message(), "DNS resolution failed"));
}

bool IsUnknownField(const grpc::Status& status, int field) {
  return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
         absl::StrContains(status.error_message(), absl::StrCat("field number ", field, " of ")) &&
         absl::StrContains(status.error_message(), " is not known to this server");
}

}  // namespace quire
