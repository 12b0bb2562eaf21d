// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_restorer.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "kv_manager/requests/outbox_limit.h"
#include "kv_manager/requests/request_log.h"
#include "kv_manager/requests/request_record.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/response_set.h"
#include "kv_manager/requests/token_stream.h"
#include "kv_manager/text/stop_string_condition.h"

namespace quire {
namespace {

// The message of the client, with the tokens that the worker has in place of the prompt.
absl::StatusOr<ValidRequest> Validate(const RequestRecord& record, const RequestToRestore& found,
                                      const RequestLimits& limits, GuideCache* guides) {
  v1::GenerateRequest request = record.request;
  const std::string text = request.text();
  const bool had_text = request.has_text();
  request.mutable_token_ids()->mutable_ids()->Add(found.prompt.begin(), found.prompt.end());
  // The manager that admitted the request has charged its tenant for the guide.
  const GuideUser user{.tenant = record.identity.tenant, .salt = record.cache_salt, .pays = false};
  QUIRE_ASSIGN_OR_RETURN(ValidRequest valid, ValidateGenerate(request, *found.model, limits,
                                                              record.request.sampling().seed(), user, guides));
  if (had_text) {
    valid.echo = Echo::kText;
    valid.prompt_text = text;
  }
  valid.request.tenant = record.identity.tenant;
  valid.request.cache_salt = record.cache_salt;
  return valid;
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
  QUIRE_ASSIGN_OR_RETURN(ValidRequest valid,
                         Validate(*record, found, environment_->options.limits, &environment_->guides));
  const int64_t now_us = environment_->clock->NowMicros();
  const int64_t unix_us = absl::ToUnixMicros(absl::Now());
  valid.request.id = environment_->registry.NextId();
  valid.request.generation = found.generation;
  valid.request.arrival_us = now_us - (unix_us - record->arrival_unix_us);
  if (record->deadline_unix_us.has_value()) {
    valid.request.deadline_us = now_us + (*record->deadline_unix_us - unix_us);
  }
  valid.request.record = std::make_shared<const std::string>(found.record);
  std::shared_ptr<const StopStringCondition> stop_strings;
  if (!valid.output.stop.empty()) {
    std::shared_ptr<const Tokenizer> tokenizer(found.model, found.model->tokenizer.get());
    stop_strings = std::make_shared<StopStringCondition>(std::move(tokenizer), valid.request.prompt, valid.output);
  }
  if (valid.request.beam.has_value()) valid.request.beam_stop = stop_strings;
  // Only what is left of the grace, which began with the end of the request.
  absl::Duration grace = environment_->options.detach.grace;
  const bool is_over = found.is_over != nullptr && found.is_over(valid.request, stop_strings.get());
  if (is_over) grace -= absl::Microseconds(found.idle_us);
  if (is_over && grace <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("it ended longer ago than --detach-grace");
  }
  TokenStream::Environment stream_environment{
      .engine = environment_->engine,
      .run_later = [threads = &environment_->text_threads](auto job) { threads->RunOutput(std::move(job)); },
      .on_end = [](const StreamEnd& /*end*/) {},
      // The engine tells all tokens that the samples have, in one go.
      .max_outbox_tokens =
          std::max(OutboxLimit(environment_->options.max_outbox_tokens, valid.request),
                   static_cast<size_t>(valid.request.max_tokens) *
                       static_cast<size_t>(valid.request.beam.has_value() ? valid.request.beam->num_return
                                                                          : valid.request.num_samples)),
      .keeper = environment_->resumable.NewKeeper(record->identity, valid.request.id, record->nonce),
      .num_promised_tokens = valid.request.max_tokens};
  // The manager before has logged what had ended.
  if (environment_->options.logs_requests && !is_over) {
    const TraceSpan span = StartSpan(
        std::nullopt, {environment_->random.Next(), environment_->random.Next(), environment_->random.Next()});
    const auto log =
        std::make_shared<RequestLog>(environment_->clock, record->identity.name, record->identity.tenant, span);
    stream_environment.on_tokens = [log] { log->OnTokens(); };
    stream_environment.on_end = [log](const StreamEnd& end) { log->OnEnd(end); };
  }
  ResponseSet responses(found.model, record->identity.name, valid);
  const int num_returned = responses.num_returned();
  const bool picks_best = responses.picks_best();
  const auto stream = std::make_shared<TokenStream>(std::move(stream_environment), valid.request.id,
                                                    std::move(responses), StreamReader());
  const auto keep = [environment = environment_, stream, record = *record, repeats_tokens = found.repeats_tokens,
                     num_returned, picks_best, max_tokens = valid.request.max_tokens,
                     grace_left = is_over ? std::optional(grace) : std::nullopt](const RestoredCopy& copy) {
    if (!repeats_tokens) {
      // Samples of which the best are picked are sent when all have ended.
      const std::vector<int> ranked(num_returned, copy.is_over ? max_tokens : 0);
      stream->LimitPromise(picks_best ? ranked : copy.num_tokens);
    }
    return environment->resumable.Restore(record.identity,
                                          {.nonce = record.nonce,
                                           .arrival_unix_us = record.arrival_unix_us,
                                           .copy = copy,
                                           .repeats_tokens = repeats_tokens},
                                          stream, &environment->registry, grace_left);
  };
  return RequestRestored{.request = std::move(valid.request),
                         .sink = stream,
                         .has_ended = [stream] { return stream->has_ended(); },
                         .keep = keep,
                         .is_over = is_over};
}

}  // namespace quire
