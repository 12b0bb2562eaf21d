// SPDX-License-Identifier: Apache-2.0

#include "client/policy/call_status.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace quire {
namespace {

bool HasCode(const google::rpc::Status& status, absl::StatusCode code) {
  return status.code() == static_cast<int>(code);
}

}  // namespace

bool HasReason(const google::rpc::Status& status, absl::string_view reason) {
  google::rpc::ErrorInfo info;
  return std::any_of(status.details().begin(), status.details().end(), [&](const google::protobuf::Any& detail) {
    return detail.Is<google::rpc::ErrorInfo>() && detail.UnpackTo(&info) && info.reason() == reason;
  });
}

bool IsRestoring(const google::rpc::Status& status) {
  return HasReason(status, "RESTORING");
}

bool IsStandingBy(const google::rpc::Status& status) {
  return HasCode(status, absl::StatusCode::kUnavailable) && HasReason(status, "NOT_LEADER");
}

bool IsNotLeading(const google::rpc::Status& status) {
  return IsStandingBy(status) || (HasCode(status, absl::StatusCode::kUnavailable) && HasReason(status, "DRAINING"));
}

bool IsOfNoLeader(const google::rpc::Status& status) {
  const bool is_unanswered =
      HasCode(status, absl::StatusCode::kUnavailable) || HasCode(status, absl::StatusCode::kDeadlineExceeded);
  return IsNotLeading(status) || (is_unanswered && status.details().empty());
}

bool IsCut(const google::rpc::Status& status) {
  switch (static_cast<absl::StatusCode>(status.code())) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return status.details().empty() || IsRestoring(status);
    // Too many headers of another call end all calls of the connection. A message or headers of the call itself would
    // be too large again.
    case absl::StatusCode::kResourceExhausted:
      return status.details().empty() && !absl::StrContains(status.message(), "larger than max") &&
             !absl::StrContains(status.message(), "to-be-sent");
    default:
      return false;
  }
}

bool IsUnreached(const google::rpc::Status& status) {
  return IsCut(status) && (absl::StrContains(status.message(), "failed to connect") ||
                           absl::StrContains(status.message(), "DNS resolution failed") ||
                           absl::StrContains(status.message(), "errors resolving"));
}

bool IsUnknownField(const google::rpc::Status& status, int field) {
  return HasCode(status, absl::StatusCode::kInvalidArgument) &&
         absl::StrContains(status.message(), absl::StrCat("field number ", field, " of ")) &&
         absl::StrContains(status.message(), " is not known to this server");
}

}  // namespace quire
