// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_restorer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "kv_manager/requests/request_maker.h"
#include "kv_manager/requests/request_record.h"

namespace quire {
namespace {

// The message of the client, with the tokens that the worker has in place of the prompt.
absl::StatusOr<MadeRequest> MakeAgain(const RequestMaker& maker, const RequestRecord& record,
                                      const RequestToRestore& found) {
  v1::GenerateRequest message = record.request;
  message.mutable_token_ids()->mutable_ids()->Add(found.prompt.begin(), found.prompt.end());
  // The manager that admitted the request has charged its tenant for the guide.
  const GuideUser user{.tenant = record.identity.tenant, .salt = record.cache_salt, .pays = false};
  QUIRE_ASSIGN_OR_RETURN(MadeRequest made, maker.Make(message, found.model, message.sampling().seed(), user));
  if (record.request.has_text()) {
    made.valid.echo = Echo::kText;
    made.valid.prompt_text = record.request.text();
  }
  made.valid.request.tenant = record.identity.tenant;
  made.valid.request.cache_salt = record.cache_salt;
  return made;
}

// The pins ended with the manager before. They are made again with the next token, for what is left of their time,
// counted from the arrival of the request.
std::vector<Request::PrefixPin> PinsLeft(const RequestRecord& record, size_t num_prompt_tokens, int64_t unix_us) {
  std::vector<Request::PrefixPin> pins = record.pins;
  for (Request::PrefixPin& pin : pins) {
    pin.ttl_us -= std::max<int64_t>(unix_us - record.arrival_unix_us, 0);
    pin.num_tokens = pin.ttl_us <= 0 ? 0 : std::min(pin.num_tokens, static_cast<int>(num_prompt_tokens));
  }
  return pins;
}

}  // namespace

absl::StatusOr<RequestRestored> RequestRestorer::Restore(const RequestToRestore& found) const {
  const std::optional<SealKey>& key = environment_->options.detach.resume_key;
  if (!key.has_value()) return absl::FailedPreconditionError("--resume-key-file is not set");
  const std::optional<RequestRecord> record = DecodeRequestRecord(found.record, *key);
  if (!record.has_value()) {
    return absl::PermissionDeniedError("the record was made with another key or by another version");
  }
  if (!environment_->resumable.is_enabled()) {
    return absl::FailedPreconditionError("--max-detached-requests is 0");
  }
  const RequestMaker maker(environment_);
  QUIRE_ASSIGN_OR_RETURN(MadeRequest made, MakeAgain(maker, *record, found));
  Request& request = made.valid.request;
  const int64_t unix_us = absl::ToUnixMicros(absl::Now());
  const int64_t unix_minus_clock_us = unix_us - environment_->clock->NowMicros();
  request.arrival_us = record->arrival_unix_us - unix_minus_clock_us;
  if (record->deadline_unix_us.has_value()) request.deadline_us = *record->deadline_unix_us - unix_minus_clock_us;
  request.pins = PinsLeft(*record, request.prompt.size(), unix_us);
  request.record = std::make_shared<const std::string>(found.record);
  // Only what is left of the grace, which began with the end of the request.
  absl::Duration grace = environment_->options.detach.grace;
  const bool is_over = found.is_over != nullptr && found.is_over(request, made.StopStrings().get());
  if (is_over) grace -= absl::Microseconds(found.idle_us);
  if (is_over && grace <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("it ended longer ago than --detach-grace");
  }
  StreamOrigin origin;
  origin.name = record->identity.name;
  origin.keeper = environment_->resumable.NewKeeper(record->identity, request.id, record->nonce);
  origin.is_restored = true;
  // The manager before has logged what had ended.
  if (!is_over) origin.span = environment_->NewSpan(std::nullopt);
  origin.message = &record->request;
  const std::shared_ptr<TokenStream> stream = maker.MakeStream(made, std::move(origin));
  const auto keep = [environment = environment_, stream, record = *record, repeats_tokens = found.repeats_tokens,
                     grace_left = is_over ? std::optional(grace) : std::nullopt](const RestoredCopy& copy) {
    if (!repeats_tokens) stream->LimitPromise(copy.num_tokens, copy.is_over);
    return environment->resumable.Restore(record.identity,
                                          {.nonce = record.nonce,
                                           .arrival_unix_us = record.arrival_unix_us,
                                           .copy = copy,
                                           .repeats_tokens = repeats_tokens},
                                          stream, &environment->registry, grace_left);
  };
  return RequestRestored{.request = std::move(request),
                         .sink = stream,
                         .has_ended = [stream] { return stream->has_ended(); },
                         .keep = keep,
                         .is_over = is_over};
}

}  // namespace quire
