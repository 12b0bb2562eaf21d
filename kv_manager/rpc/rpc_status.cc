#include "kv_manager/rpc/rpc_status.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_reason.h"
#include "google/rpc/error_details.pb.h"

namespace quire {
namespace {

constexpr int kMaxFieldErrors = 16;
constexpr size_t kMaxFieldBytes = 64;
constexpr size_t kMaxDescriptionBytes = 128;
constexpr size_t kMaxQuotedBytes = 64;
// Trailers travel in headers frames, which peers limit to 8 KiB: the details in base64 and the message fit.
constexpr size_t kMaxMessageBytes = 512;
constexpr size_t kMaxDetailsBytes = 4096;

constexpr char kTypePrefix[] = "type.googleapis.com/";
constexpr char kDomain[] = "quire";

struct CodeDefaults {
  absl::StatusCode code;
  const char* reason;
  int64_t retry_delay_ms;  // -1: none.
};
constexpr CodeDefaults kCodeDefaults[] = {
    {absl::StatusCode::kResourceExhausted, "QUEUE_FULL", 200},
    {absl::StatusCode::kUnavailable, "NO_WORKER", 1000},
    {absl::StatusCode::kFailedPrecondition, "NEVER_FITS", -1},
    {absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED", -1},
    {absl::StatusCode::kInternal, "INTERNAL", -1},
};

template <typename Message>
std::string TypeUrl() {
  return kTypePrefix + Message::descriptor()->full_name();
}

template <typename Message>
void SetDetail(const Message& detail, absl::Status* status) {
  status->SetPayload(TypeUrl<Message>(), absl::Cord(detail.SerializeAsString()));
}

template <typename Message>
std::optional<Message> GetDetail(const absl::Status& status) {
  const auto payload = status.GetPayload(TypeUrl<Message>());
  Message detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

std::string Shortened(std::string text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    text.resize(max_bytes - 3);
    text += "...";
  }
  return text;
}

// grpc-message and proto strings must be printable: bytes that are not become hexadecimal escapes.
std::string Ascii(absl::string_view text) {
  const bool is_printable = std::all_of(text.begin(), text.end(), absl::ascii_isprint);
  return is_printable ? std::string(text) : absl::CHexEscape(text);
}

absl::Status WithDefaultsOfCode(absl::Status status) {
  if (GetDetail<google::rpc::ErrorInfo>(status).has_value()) return status;
  const std::string reason = StatusReason(status);
  for (const CodeDefaults& defaults : kCodeDefaults) {
    if (status.code() != defaults.code) continue;
    status = WithReason(std::move(status), reason.empty() ? defaults.reason : reason);
    if (defaults.retry_delay_ms >= 0 && !GetDetail<google::rpc::RetryInfo>(status).has_value()) {
      status = WithRetryDelay(std::move(status), defaults.retry_delay_ms);
    }
  }
  return status;
}

// Moves the status's detail of one type to the wire when it still fits.
template <typename Message>
void AppendDetail(const absl::Status& status, google::rpc::Status* wire) {
  const auto payload = status.GetPayload(TypeUrl<Message>());
  if (!payload.has_value()) return;
  google::protobuf::Any* detail = wire->add_details();
  detail->set_type_url(TypeUrl<Message>());
  detail->set_value(std::string(*payload));
  if (wire->ByteSizeLong() > kMaxDetailsBytes) wire->mutable_details()->RemoveLast();
}

}  // namespace

void FieldErrors::Add(std::string field, std::string description) {
  if (count_++ >= kMaxFieldErrors) return;
  kept_.push_back({Shortened(std::move(field), kMaxFieldBytes), Shortened(Ascii(description), kMaxDescriptionBytes)});
}

absl::Status FieldErrors::ToStatus() const {
  QUIRE_CHECK(!empty());
  google::rpc::BadRequest bad_request;
  for (const FieldError& error : kept_) {
    auto* violation = bad_request.add_field_violations();
    violation->set_field(error.field);
    violation->set_description(error.description);
  }
  std::string message = absl::StrCat(kept_[0].field, ": ", kept_[0].description);
  if (count_ > 1) absl::StrAppend(&message, " (and ", count_ - 1, " more)");
  absl::Status status = absl::InvalidArgumentError(message);
  SetDetail(bad_request, &status);
  return status;
}

absl::Status WithReason(absl::Status status, absl::string_view reason,
                        const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  SetDetail(info, &status);
  return status;
}

absl::Status WithRetryDelay(absl::Status status, int64_t delay_ms) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(delay_ms / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay_ms % 1000) * 1000000);
  SetDetail(retry, &status);
  return status;
}

std::optional<int64_t> RetryDelayMs(const absl::Status& status) {
  const auto retry = GetDetail<google::rpc::RetryInfo>(WithDefaultsOfCode(status));
  if (!retry.has_value()) return std::nullopt;
  return retry->retry_delay().seconds() * 1000 + retry->retry_delay().nanos() / 1000000;
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  const absl::Status detailed = WithDefaultsOfCode(status);
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(detailed.code()));
  wire.set_message(Shortened(Ascii(detailed.message()), kMaxMessageBytes));
  AppendDetail<google::rpc::ErrorInfo>(detailed, &wire);
  AppendDetail<google::rpc::RetryInfo>(detailed, &wire);
  AppendDetail<google::rpc::BadRequest>(detailed, &wire);
  return wire;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status wire = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(wire.code()), wire.message(), wire.SerializeAsString());
}

grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context) {
  if (const auto delay_ms = RetryDelayMs(status); delay_ms.has_value()) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(*delay_ms));
  }
  return ToGrpcStatus(status);
}

std::string Quoted(absl::string_view value) {
  const bool is_long = value.size() > kMaxQuotedBytes;
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, kMaxQuotedBytes)), is_long ? "\"..." : "\"");
}

}  // namespace quire
