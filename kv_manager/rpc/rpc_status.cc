// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/rpc_status.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error_text.h"
#include "base/status_reason.h"
#include "google/rpc/error_details.pb.h"

namespace quire {
namespace {

constexpr int kMaxFieldErrors = 16;
constexpr size_t kMaxFieldBytes = 64;
// The first error is the one that the message shows, so it may say how to mend the request.
constexpr size_t kMaxFirstDescriptionBytes = 384;
constexpr size_t kMaxDescriptionBytes = 128;
constexpr size_t kMaxQuotedBytes = 64;

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

// The status with the reason and the delay of its code, unless it has a reason of its own.
absl::Status WithDefaultsOfCode(absl::Status status) {
  if (ReasonOf(status).has_value()) return status;
  for (const CodeDefaults& defaults : kCodeDefaults) {
    if (status.code() != defaults.code) continue;
    status = WithReason(std::move(status), defaults.reason);
    if (defaults.retry_delay_ms >= 0 && !RetryDelayOf(status).has_value()) {
      status = WithRetryDelay(std::move(status), defaults.retry_delay_ms);
    }
  }
  return status;
}

google::rpc::ErrorInfo EncodeReason(const StatusReason& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason.word);
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(reason.metadata.begin(), reason.metadata.end());
  return info;
}

google::rpc::RetryInfo EncodeRetryDelay(int64_t delay_ms) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(delay_ms / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay_ms % 1000) * 1000000);
  return retry;
}

// Appends a detail when it still fits.
void AppendDetail(std::string type_url, std::string value, google::rpc::Status* wire) {
  google::protobuf::Any* detail = wire->add_details();
  detail->set_type_url(std::move(type_url));
  detail->set_value(std::move(value));
  if (wire->ByteSizeLong() > kMaxErrorDetailsBytes) wire->mutable_details()->RemoveLast();
}

template <typename Message>
void AppendDetail(const Message& detail, google::rpc::Status* wire) {
  AppendDetail(TypeUrl<Message>(), detail.SerializeAsString(), wire);
}

}  // namespace

void FieldErrors::Add(std::string field, std::string description) {
  if (count_++ >= kMaxFieldErrors) return;
  const size_t max_bytes = kept_.empty() ? kMaxFirstDescriptionBytes : kMaxDescriptionBytes;
  kept_.push_back(
      {ShortenedText(std::move(field), kMaxFieldBytes), ShortenedText(PrintableText(description), max_bytes)});
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
  if (count_ > 1) absl::StrAppend(&message, " (and ", count_ - 1, count_ == 2 ? " more error)" : " more errors)");
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(TypeUrl<google::rpc::BadRequest>(), absl::Cord(bad_request.SerializeAsString()));
  return status;
}

std::optional<int64_t> RetryDelayMs(const absl::Status& status) {
  return RetryDelayOf(WithDefaultsOfCode(status));
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  const absl::Status detailed = WithDefaultsOfCode(status);
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(detailed.code()));
  wire.set_message(ShortenedText(PrintableText(detailed.message()), kMaxErrorMessageBytes));
  if (const auto reason = ReasonOf(detailed); reason.has_value()) AppendDetail(EncodeReason(*reason), &wire);
  if (const auto delay_ms = RetryDelayOf(detailed); delay_ms.has_value()) {
    AppendDetail(EncodeRetryDelay(*delay_ms), &wire);
  }
  const std::string bad_request = TypeUrl<google::rpc::BadRequest>();
  if (const auto payload = detailed.GetPayload(bad_request); payload.has_value()) {
    AppendDetail(bad_request, std::string(*payload), &wire);
  }
  return wire;
}

std::string Quoted(absl::string_view value) {
  const bool is_long = value.size() > kMaxQuotedBytes;
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, kMaxQuotedBytes)), is_long ? "\"..." : "\"");
}

}  // namespace quire
