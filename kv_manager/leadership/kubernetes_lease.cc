// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/kubernetes_lease.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/read_file.h"
#include "base/status.h"
#include "kv_manager/leadership/candidate_name.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTransitions = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxDurationSeconds = 24 * 60 * 60;

// The member of an object, or null.
const json& Member(const json& object, const char* name) {
  static const json null;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : null;
}

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

int64_t Number(const json& value, int64_t max) {
  return value.is_number_integer() ? std::clamp(value.get<int64_t>(), int64_t{0}, max) : 0;
}

// The form of MicroTime.
std::string TimeOfDay() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace

KubernetesLease::KubernetesLease(const KubernetesLeaseOptions& options, const Clock* clock)
    : options_(options), clock_(clock) {}

absl::StatusOr<LeaseHolder> KubernetesLease::TryAcquire(absl::Duration timeout) {
  const int64_t until_us = clock_->NowMicros() + absl::ToInt64Microseconds(timeout);
  QUIRE_RETURN_IF_ERROR(Read(until_us));
  if (holder_ != options_.candidate && !IsFree()) return Holder();
  // If the answer to an earlier call was lost, this manager holds the lease already.
  const int64_t transitions = holder_ == options_.candidate ? transitions_ : transitions_ + 1;
  if (transitions > kMaxTransitions) {
    return absl::FailedPreconditionError(
        absl::StrCat("the Lease ", options_.name, " has no number for another holder"));
  }
  may_hold_ = true;
  const absl::Status written = Write(options_.candidate, transitions, until_us);
  if (absl::IsAborted(written)) return LeaseHolder{};  // Another candidate was faster. The next call reads its name.
  QUIRE_RETURN_IF_ERROR(written);
  return Holder();
}

absl::Status KubernetesLease::Renew(absl::Duration timeout) {
  const int64_t until_us = clock_->NowMicros() + absl::ToInt64Microseconds(timeout);
  const int64_t term_transitions = transitions_;
  const absl::Status written = Write(options_.candidate, transitions_, until_us);
  if (!absl::IsAborted(written)) return written;
  // Somebody has changed the object, or the answer to the last renewal was lost.
  QUIRE_RETURN_IF_ERROR(Read(until_us));
  if (holder_ != options_.candidate || transitions_ != term_transitions) {
    return absl::AbortedError(absl::StrCat("the Lease ", options_.name, " has another holder, '", holder_, "'"));
  }
  const absl::Status second = Write(options_.candidate, transitions_, until_us);
  return absl::IsAborted(second) ? absl::UnavailableError(second.message()) : second;
}

absl::Status KubernetesLease::Release(absl::Duration timeout) {
  if (!may_hold_) return absl::OkStatus();
  const int64_t until_us = clock_->NowMicros() + absl::ToInt64Microseconds(timeout);
  // The answer to the last call may have been lost.
  QUIRE_RETURN_IF_ERROR(Read(until_us));
  return holder_ == options_.candidate ? Write("", transitions_, until_us) : absl::OkStatus();
}

bool KubernetesLease::IsFree() const {
  return holder_.empty() || clock_->NowMicros() - seen_us_ > duration_us_;
}

LeaseHolder KubernetesLease::Holder() const {
  const bool is_me = holder_ == options_.candidate;
  return {.is_me = is_me, .term = is_me ? static_cast<uint64_t>(transitions_) + 1 : 0, .address = AddressOf(holder_)};
}

absl::Status KubernetesLease::Read(int64_t until_us) {
  return Call("GET", "", until_us);
}

absl::Status KubernetesLease::Write(const std::string& holder, int64_t transitions, int64_t until_us) {
  json changed = lease_;  // It has what others have added, such as annotations.
  json& spec = changed["spec"];
  const std::string now = TimeOfDay();
  if (holder != holder_) spec["acquireTime"] = now;
  spec["renewTime"] = now;
  if (holder.empty()) {
    spec.erase("holderIdentity");
  } else {
    spec["holderIdentity"] = holder;
  }
  spec["leaseTransitions"] = transitions;
  spec["leaseDurationSeconds"] = absl::ToInt64Seconds(options_.duration);
  return Call("PUT", changed.dump(), until_us);
}

absl::Status KubernetesLease::Call(const std::string& method, const std::string& body, int64_t until_us) {
  // The files are read each time, because the cluster replaces the token every hour.
  QUIRE_ASSIGN_OR_RETURN(const std::string name_space, ReadFile(options_.credentials + "/namespace"));
  QUIRE_ASSIGN_OR_RETURN(const std::string token, ReadFile(options_.credentials + "/token"));
  const std::string url = absl::StrCat(options_.api, "/apis/coordination.k8s.io/v1/namespaces/",
                                       absl::StripAsciiWhitespace(name_space), "/leases/", options_.name);
  const absl::Duration left = absl::Microseconds(until_us - clock_->NowMicros());
  if (left < absl::Milliseconds(1)) return absl::DeadlineExceededError(absl::StrCat(url, " took too long"));
  QUIRE_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      http_.Call({.method = method,
                  .url = url,
                  .headers = {absl::StrCat("Authorization: Bearer ", absl::StripAsciiWhitespace(token)),
                              "Content-Type: application/json", "Accept: application/json"},
                  .body = body,
                  .authority = absl::StartsWith(options_.api, "https://") ? options_.credentials + "/ca.crt" : "",
                  .timeout = left}));
  json object = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (answer.code == 409) return absl::AbortedError(absl::StrCat("the Lease ", options_.name, " was changed"));
  if (answer.code != 200) {
    const std::string message = Text(Member(object, "message"));
    return absl::UnavailableError(
        absl::StrCat(method, " ", url, ": HTTP ", answer.code, message.empty() ? "" : ": ", message));
  }
  std::string version = Text(Member(Member(object, "metadata"), "resourceVersion"));
  const json& spec = Member(object, "spec");
  if (version.empty() || !(spec.is_object() || spec.is_null())) {
    return absl::UnavailableError(absl::StrCat(method, " ", url, ": the answer is no Lease object with a version"));
  }
  if (version != version_) seen_us_ = clock_->NowMicros();
  version_ = std::move(version);
  holder_ = Text(Member(spec, "holderIdentity"));
  transitions_ = Number(Member(spec, "leaseTransitions"), kMaxTransitions);
  duration_us_ = Number(Member(spec, "leaseDurationSeconds"), kMaxDurationSeconds) * 1'000'000;
  lease_ = std::move(object);
  return absl::OkStatus();
}

}  // namespace quire
