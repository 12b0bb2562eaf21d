// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_trace.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/sampling_fields.h"
#include "base/span_queue.h"

namespace quire {
namespace {

// The sampling fields that the semantic conventions know.
constexpr const char* kSampling[] = {"temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty"};

void AddSampling(const Request& request, std::vector<SpanAttribute>* out) {
  for (const SamplingField& field : kSamplingFields) {
    if (field.is_for_draws && request.beam.has_value()) continue;
    for (const char* const name : kSampling) {
      if (absl::string_view(field.name) != name) continue;
      out->push_back({absl::StrCat("gen_ai.request.", name), field.Of(request.sampling)});
    }
  }
}

}  // namespace

std::string OperationOf(const v1::GenerateRequest& message) {
  return message.has_chat() ? "chat" : "text_completion";
}

RequestTrace::RequestTrace(RequestEnvironment* environment, TraceSpan span, std::string operation, int64_t arrival_us)
    : environment_(environment),
      context_(std::move(span)),
      operation_(std::move(operation)),
      arrival_us_(arrival_us),
      unix_minus_clock_us_(absl::ToUnixMicros(absl::Now()) - environment->clock->NowMicros()),
      attributes_{SpanAttribute{"gen_ai.operation.name", operation_}, SpanAttribute{"gen_ai.provider.name", "quire"}} {}

void RequestTrace::Describe(const std::string& name, const v1::GenerateRequest& message, const MadeRequest& made) {
  const Request& request = made.valid.request;
  model_ = made.model->name;
  attributes_.push_back({"gen_ai.request.model", model_});
  attributes_.push_back({"gen_ai.response.model", model_});
  attributes_.push_back({"gen_ai.response.id", name});
  attributes_.push_back({"gen_ai.request.max_tokens", int64_t{request.max_tokens}});
  if (message.sampling().has_seed()) {
    attributes_.push_back({"gen_ai.request.seed", static_cast<int64_t>(message.sampling().seed())});
  }
  const int num_outputs = NumOutputs(request);
  if (num_outputs != 1) attributes_.push_back({"gen_ai.request.choice.count", int64_t{num_outputs}});
  AddSampling(request, &attributes_);
  if (!request.tenant.empty()) attributes_.push_back({"quire.tenant", request.tenant});
}

void RequestTrace::Describe(const v1::EmbedRequest& message, const ServedModel& model) {
  model_ = model.name;
  attributes_.push_back({"gen_ai.request.model", model_});
  attributes_.push_back({"gen_ai.response.model", model_});
  attributes_.push_back({"quire.embeddings.inputs", int64_t{message.inputs_size()}});
  if (message.has_dimensions()) {
    attributes_.push_back({"gen_ai.embeddings.dimension.count", static_cast<int64_t>(message.dimensions())});
  }
}

void RequestTrace::OnPlaced(const std::string& worker) {
  const int64_t now_us = environment_->clock->NowMicros();
  const MutexLock lock(&mutex_);
  visits_.push_back({worker, now_us});
}

void RequestTrace::OnStarted() {
  const int64_t now_us = environment_->clock->NowMicros();
  const MutexLock lock(&mutex_);
  if (!started_us_.has_value()) started_us_ = now_us;
}

void RequestTrace::OnTokens() {
  const int64_t now_us = environment_->clock->NowMicros();
  const MutexLock lock(&mutex_);
  if (!first_token_us_.has_value()) first_token_us_ = now_us;
}

void RequestTrace::OnEnd(const StreamEnd& end) {
  const int64_t end_us = environment_->clock->NowMicros();
  Span span{.context = context_,
            .name = model_.empty() ? operation_ : absl::StrCat(operation_, " ", model_),
            .kind = SpanKind::kServer,
            .start_unix_us = UnixMicros(arrival_us_),
            .end_unix_us = UnixMicros(end_us),
            .attributes = attributes_};
  if (end.code != absl::StatusCode::kOk) {
    span.error = absl::StatusCodeToString(end.code);
    span.attributes.push_back({"error.type", span.error});
  } else if (!end.finish_reason.empty()) {
    const std::vector<std::string> reasons = absl::StrSplit(end.finish_reason, ',');
    span.attributes.push_back({"gen_ai.response.finish_reasons", reasons});
  }
  if (end.prompt_tokens > 0) {
    span.attributes.push_back({"gen_ai.usage.input_tokens", int64_t{end.prompt_tokens}});
    span.attributes.push_back({"gen_ai.usage.output_tokens", int64_t{end.output_tokens}});
    span.attributes.push_back({"gen_ai.usage.cache_read.input_tokens", int64_t{end.cached_tokens}});
  }
  const MutexLock lock(&mutex_);
  if (first_token_us_.has_value()) {
    span.attributes.push_back({"gen_ai.response.time_to_first_chunk", Seconds(*first_token_us_ - arrival_us_)});
  }
  environment_->spans->Add(std::move(span));
  if (started_us_.has_value()) {
    AddChild({.name = "queue", .start_unix_us = UnixMicros(arrival_us_), .end_unix_us = UnixMicros(*started_us_)});
  }
  for (size_t i = 0; i < visits_.size(); ++i) {
    const int64_t left_us = i + 1 < visits_.size() ? visits_[i + 1].start_us : end_us;
    AddChild({.name = "worker",
              .kind = SpanKind::kClient,
              .start_unix_us = UnixMicros(visits_[i].start_us),
              .end_unix_us = UnixMicros(left_us),
              .attributes = {{"quire.worker", visits_[i].worker}}});
  }
}

void RequestTrace::AddChild(Span span) const {
  span.context = StartSpan(TraceParent{context_.trace_id, context_.span_id, /*is_sampled=*/true},
                           {environment_->random.Next(), 0, 0});
  environment_->spans->Add(std::move(span));
}

}  // namespace quire
