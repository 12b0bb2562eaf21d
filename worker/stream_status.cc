// SPDX-License-Identifier: Apache-2.0

#include "worker/stream_status.h"

#include <optional>
#include <string>

#include "base/error_text.h"
#include "base/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quire {

grpc::Status ToStreamStatus(const absl::Status& status) {
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = ShortenedText(PrintableText(status.message()), kMaxErrorMessageBytes);
  const std::optional<StatusReason> reason = ReasonOf(status);
  if (!reason.has_value()) return grpc::Status(code, message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason->word);
  info.set_domain("quire");
  info.mutable_metadata()->insert(reason->metadata.begin(), reason->metadata.end());
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(info);
  if (details.ByteSizeLong() > kMaxErrorDetailsBytes) details.clear_details();
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace quire
