// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/traced_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random_source.h"

namespace quire {
namespace {

TraceSpan NewSpan(const SpanQueue& spans, const std::string& traceparent) {
  static auto* const random = new RandomSource();
  return spans.Start(ParseTraceparent(traceparent), {random->Next(), random->Next(), random->Next()});
}

}  // namespace

TracedExchange::TracedExchange(SpanQueue* spans, std::shared_ptr<WebExchange> exchange, std::string route)
    : spans_(spans), exchange_(std::move(exchange)), start_us_(SteadyClock().NowMicros()) {
  const WebRequest& request = exchange_->request();
  span_ = {.context = NewSpan(*spans_, request.traceparent),
           .name = absl::StrCat(request.method, " ", route),
           .kind = SpanKind::kServer,
           .start_unix_us = absl::ToUnixMicros(absl::Now())};
  Describe({"http.request.method", request.method});
  Describe({"http.route", std::move(route)});
  Describe({"url.path", request.path});
  Describe({"quire.x_request_id", request.id});
}

TracedExchange::~TracedExchange() {
  End();
}

void TracedExchange::Describe(SpanAttribute attribute) {
  if (!span_.context.is_sampled || is_over_) return;
  if (attribute.name == "error.type") span_.error = std::get<std::string>(attribute.value);
  span_.attributes.push_back(std::move(attribute));
}

void TracedExchange::Respond(WebResponse response) {
  code_ = response.code;
  if (response.code >= 500) {
    Describe({"error.type", response.error_code.empty() ? absl::StrCat(response.code) : response.error_code});
  }
  exchange_->Respond(std::move(response));
  End();
}

void TracedExchange::BeginEvents() {
  code_ = 200;
  exchange_->BeginEvents();
}

void TracedExchange::Send(const std::string& text) {
  if (!std::exchange(has_sent_, true)) {
    Describe({"gen_ai.response.time_to_first_chunk", Seconds(SteadyClock().NowMicros() - start_us_)});
  }
  exchange_->Send(text);
}

void TracedExchange::EndEvents() {
  exchange_->EndEvents();
  End();
}

void TracedExchange::End() {
  if (is_over_) return;
  if (code_.has_value()) {
    Describe({"http.response.status_code", int64_t{*code_}});
  } else {
    Describe({"error.type", "client_disconnected"});
  }
  is_over_ = true;
  if (!span_.context.is_sampled) return;
  span_.end_unix_us = span_.start_unix_us + (SteadyClock().NowMicros() - start_us_);
  spans_->Add(std::move(span_));
}

}  // namespace quire
