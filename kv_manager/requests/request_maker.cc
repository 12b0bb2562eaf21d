// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_maker.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/requests/outbox_limit.h"
#include "kv_manager/requests/request_log.h"
#include "kv_manager/requests/request_trace.h"
#include "kv_manager/requests/response_set.h"
#include "kv_manager/text/stop_string_condition.h"

namespace quire {

std::shared_ptr<const StopCondition> MadeRequest::StopStrings() const {
  if (valid.output.stop.empty()) return nullptr;
  std::shared_ptr<const Tokenizer> tokenizer(model, model->tokenizer.get());
  return std::make_shared<StopStringCondition>(std::move(tokenizer), valid.request.prompt, valid.output);
}

absl::StatusOr<MadeRequest> RequestMaker::Make(const v1::GenerateRequest& message,
                                               std::shared_ptr<const ServedModel> model, uint64_t drawn_seed,
                                               const GuideUser& user, const std::function<bool()>* has_left) const {
  MadeRequest made{.valid = {}, .model = std::move(model)};
  if (made.model->embeds_only) {
    return WithReason(absl::FailedPreconditionError("the model gives embeddings alone, because its checkpoint has no "
                                                    "output matrix (lm_head.weight)"),
                      "EMBEDS_ONLY");
  }
  RequestLimits limits = environment_->options.limits;
  limits.has_left = has_left;
  QUIRE_ASSIGN_OR_RETURN(made.valid,
                         ValidateGenerate(message, *made.model, limits, drawn_seed, user, &environment_->guides));
  Request& request = made.valid.request;
  request.id = environment_->registry.NextId();
  request.generation = made.model->generation;
  if (request.beam.has_value()) request.beam_stop = made.StopStrings();
  return made;
}

std::shared_ptr<TokenStream> RequestMaker::MakeStream(const MadeRequest& made, StreamOrigin origin) const {
  const Request& request = made.valid.request;
  std::shared_ptr<RequestLog> log;
  if (environment_->options.logs_requests && origin.span.has_value()) {
    log = std::make_shared<RequestLog>(environment_->clock, origin.name, request.tenant, *origin.span);
  }
  std::shared_ptr<RequestTrace> trace;
  if (environment_->spans != nullptr && origin.span.has_value() && origin.span->is_sampled) {
    trace =
        std::make_shared<RequestTrace>(environment_, *origin.span, OperationOf(*origin.message), request.arrival_us);
    trace->Describe(origin.name, *origin.message, made);
  }
  TokenStream::Environment environment{
      .engine = environment_->engine,
      .run_later = [threads = &environment_->text_threads](auto job) { threads->RunOutput(std::move(job)); },
      .on_end =
          [log, trace, on_end = std::move(origin.on_end)](const StreamEnd& end) {
            if (log != nullptr) log->OnEnd(end);
            if (trace != nullptr) trace->OnEnd(end);
            on_end();
          },
      .max_outbox_tokens = OutboxLimit(environment_->options.max_outbox_tokens, request),
      .keeper = std::move(origin.keeper),
      .is_reachable = origin.is_reachable};
  if (log != nullptr || trace != nullptr) {
    environment.on_tokens = [log, trace] {
      if (log != nullptr) log->OnTokens();
      if (trace != nullptr) trace->OnTokens();
    };
  }
  if (trace != nullptr) {
    environment.on_placed = [trace](const std::string& worker) { trace->OnPlaced(worker); };
    environment.on_started = [trace] { trace->OnStarted(); };
  }
  if (origin.is_restored) {
    environment.num_promised_tokens = request.max_tokens;
    // The engine tells all tokens that the samples have, in one go.
    environment.max_outbox_tokens =
        std::max(environment.max_outbox_tokens,
                 static_cast<size_t>(request.max_tokens) * static_cast<size_t>(NumOutputs(request)));
  }
  ResponseSet responses(made.model, std::move(origin.name), made.valid);
  return std::make_shared<TokenStream>(std::move(environment), request.id, std::move(responses),
                                       std::move(origin.reader));
}

}  // namespace quire
