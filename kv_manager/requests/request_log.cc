// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_log.h"

#include <cmath>

#include "base/log.h"

namespace quire {
namespace {

double InSeconds(int64_t micros) {
  return std::round(static_cast<double>(micros) / 100) / 1e4;
}

}  // namespace

void RequestLog::OnTokens() {
  int64_t none = -1;
  first_token_us_.compare_exchange_strong(none, clock_->NowMicros());
}

void RequestLog::OnEnd(const StreamEnd& end) const {
  const int64_t first_token_us = first_token_us_;
  internal::LogLine line(LogLevel::kInfo, __FILE__, __LINE__);
  line << "request " << Named("request_id", name_);
  if (!tenant_.empty()) line << " of " << Named("tenant", tenant_);
  line << " ended: " << Named("finish_reason", end.finish_reason) << ", " << Named("prompt_tokens", end.prompt_tokens)
       << " prompt tokens, " << Named("cached_tokens", end.cached_tokens) << " of them cached, "
       << Named("output_tokens", end.output_tokens) << " output tokens";
  if (first_token_us >= 0)
    line << ", the first after " << Named("ttft_s", InSeconds(first_token_us - start_us_)) << " s";
  line << ", in " << Named("duration_s", InSeconds(clock_->NowMicros() - start_us_)) << " s; trace "
       << Named("trace_id", span_.trace_id) << ", span " << Named("span_id", span_.span_id);
  if (!span_.parent_id.empty()) line << " of " << Named("parent_span_id", span_.parent_id);
}

}  // namespace quire
