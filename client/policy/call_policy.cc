// SPDX-License-Identifier: Apache-2.0

#include "client/policy/call_policy.h"

#include <algorithm>
#include <utility>

#include "client/policy/call_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Milliseconds(500);
// A call of this duration was taken by a manager, also if it has sent no response yet: a search sends one at its end.
constexpr absl::Duration kTakenAfter = absl::Seconds(2);

}  // namespace

void CallPolicy::Note(uint32_t index, bool has_token) {
  told_.reset();
  lost_at_ = absl::InfiniteFuture();
  has_token_ |= has_token && request_.is_detachable;
  has_received_ = true;
  has_first_sample_ |= index == 0;
}

CallAction CallPolicy::After(const google::rpc::Status& end, absl::Time now) {
  using Kind = CallAction::Kind;
  if (request_.is_stream && now - call_began_ >= kTakenAfter && !IsUnreached(end)) {
    told_.reset();
    lost_at_ = absl::InfiniteFuture();
  }
  if (const std::optional<CallAction> changed = ChangeRequest(end); changed.has_value()) return *changed;

  may_have_begun_ |= IsCut(end) && !IsUnreached(end);
  // After a loss, another manager may answer at the same address.
  const bool stands_by = (request_.num_managers > 1 || is_lost()) && IsNotLeading(end);
  const bool leaves = request_.is_stream ? stands_by || (IsCut(end) && !IsRestoring(end)) : IsOfNoLeader(end);
  const bool is_unbegun = stands_by || IsUnreached(end) || (!request_.is_stream && IsOfNoLeader(end));
  const bool is_search = request_.num_managers > 1 && !has_received_ && is_unbegun;
  const bool asks_next = is_search && Searches(end, stands_by);
  const bool is_round = num_asked_ % request_.num_managers == 0;

  // A manager that has just started waits for its workers, or has not noticed yet that the call before was cut.
  const bool is_late =
      request_.is_continued &&
      (HasReason(end, "NO_WORKER") || (is_lost() && !request_.is_detachable && HasReason(end, "REQUEST_RUNNING")));
  const bool is_starting = (IsRestoring(end) && !has_received_) || is_late;
  if (!asks_next && !is_starting && !((stands_by || IsCut(end)) && MayRepeat())) return Stop(end, leaves);

  if (!is_lost()) {
    lost_at_ = now;
    delay_ = kFirstDelay;
  }
  if (!told_.has_value()) told_ = end;
  if (IsRestoring(end)) delay_ = kFirstDelay;  // It takes no longer than the workers need to answer.
  const absl::Duration delay = asks_next && !is_round ? absl::ZeroDuration() : delay_;
  if (now + std::max(delay, kFirstDelay) >= std::min(request_.deadline, lost_at_ + request_.resume_time)) {
    return Stop(end, leaves);
  }
  if (delay > absl::ZeroDuration()) delay_ = std::min(2 * delay_, request_.is_stream ? kLongestDelay : kFirstDelay);
  const Kind kind = asks_next ? Kind::kAskNext : has_token_ ? Kind::kResume : Kind::kAgain;
  return {.kind = kind, .delay = delay, .leaves = leaves, .error = *told_};
}

std::optional<CallAction> CallPolicy::ChangeRequest(const google::rpc::Status& end) {
  if (request_.has_on_disconnect && IsUnknownField(end, v1::GenerateRequest::kOnDisconnectFieldNumber)) {
    request_.has_on_disconnect = request_.is_detachable = false;
    return CallAction{.kind = CallAction::Kind::kWithoutOnDisconnect, .error = end};
  }
  if (has_token_ && HasReason(end, "REQUEST_UNKNOWN") && MayContinue()) {
    unknown_ = end;
    has_token_ = false;
    request_.is_continued = true;
    return CallAction{.kind = CallAction::Kind::kContinue, .error = end};
  }
  if (unknown_.has_value() && IsUnknownField(end, v1::GenerateRequest::kContinueFromFieldNumber)) {
    return CallAction{.error = *unknown_};
  }
  return std::nullopt;
}

bool CallPolicy::Searches(const google::rpc::Status& end, bool stands_by) {
  const bool keeps_told = told_.has_value() && (request_.is_stream || !told_->details().empty());
  if (stands_by || !keeps_told) told_ = end;
  has_standby_ |= stands_by;
  return ++num_asked_ % request_.num_managers != 0 || std::exchange(has_standby_, false);
}

bool CallPolicy::MayContinue() const {
  return keeps_tokens() && (has_first_sample_ || request_.is_continued || !request_.has_prompt_logprobs);
}

bool CallPolicy::MayRepeat() const {
  if (has_token_ || request_.is_continued) return true;
  // A manager that lets no request outlive its call has sent responses without a token.
  if (has_received_ || !request_.is_detachable || !request_.is_named) return false;
  // When no connection could be made at all, the request has not begun, and the user should hear of it soon.
  return may_have_begun_;
}

CallAction CallPolicy::Stop(const google::rpc::Status& end, bool leaves) const {
  // What has failed first says more than the attempts to connect again.
  return {.leaves = leaves, .error = told_.has_value() && end.details().empty() ? *told_ : end};
}

}  // namespace quire
