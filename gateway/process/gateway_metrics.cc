// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/gateway_metrics.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/error_text.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "serving/port_metrics.h"
#include "serving/process_metrics.h"

namespace quire {
namespace {

// A client may invent the name of a field, so it has a bound, and must not look like more of the line.
std::string ParamText(const std::string& param) {
  constexpr size_t kMaxBytes = 64;
  return ShortenedText(absl::CHexEscape(param), kMaxBytes);
}

}  // namespace

// Ends with the last reference, when nobody can answer any more.
class GatewayMetrics::Counted : public WebExchange {
 public:
  Counted(GatewayMetrics* metrics, std::shared_ptr<WebExchange> exchange, std::string path, int num_running)
      : metrics_(metrics), exchange_(std::move(exchange)), path_(std::move(path)), num_running_(num_running) {
    metrics_->num_running_ += num_running_;
  }
  ~Counted() override { metrics_->num_running_ -= num_running_; }

  const WebRequest& request() const override { return exchange_->request(); }
  std::string traceparent() const override { return exchange_->traceparent(); }
  void Describe(SpanAttribute attribute) override { exchange_->Describe(std::move(attribute)); }
  std::shared_ptr<const std::string> TakeBody() override { return exchange_->TakeBody(); }
  void OnGone(std::function<void()> gone) override { exchange_->OnGone(std::move(gone)); }
  void Keep(std::shared_ptr<void> something) override { exchange_->Keep(std::move(something)); }
  void Respond(WebResponse response) override {
    ++metrics_->answers_[{path_, response.code}];
    if (response.code >= 400) metrics_->LogFailure(request(), path_, response);
    exchange_->Respond(std::move(response));
  }
  void BeginEvents() override {
    ++metrics_->answers_[{path_, 200}];
    metrics_->CountStreamStart(path_, std::chrono::steady_clock::now() - start_);
    exchange_->BeginEvents();
  }
  void Send(const std::string& text) override { exchange_->Send(text); }
  void EndEvents() override { exchange_->EndEvents(); }

 private:
  GatewayMetrics* const metrics_;
  const std::shared_ptr<WebExchange> exchange_;
  const std::string path_;
  const int num_running_;  // Weight in the number of running requests: 0 or 1.
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void GatewayMetrics::LogFailure(const WebRequest& request, const std::string& path, const WebResponse& response) {
  const std::optional<int64_t> num_dropped = log_limiter_.Admit(SteadyClock().NowMicros());
  if (!num_dropped) return;
  if (LogLevel::kInfo < GetLogLevel()) return;
  internal::LogLine line(LogLevel::kInfo, __FILE__, __LINE__);
  line << "request " << Named("x_request_id", request.id) << " for " << Named("path", path) << " got "
       << Named("code", response.code);
  if (!response.error_code.empty()) line << ", error " << Named("error", response.error_code);
  if (!response.error_param.empty()) line << ", param \"" << Named("param", ParamText(response.error_param)) << "\"";
  if (*num_dropped > 0) line << " (" << *num_dropped << " such lines were dropped)";
}

void GatewayMetrics::CountIgnored(const WebRequest& request, const IgnoredFields& ignored) {
  if (ignored.count == 0) return;
  ignored_fields_[request.path] += static_cast<int64_t>(ignored.count);
  const std::optional<int64_t> num_dropped = ignored_limiter_.Admit(SteadyClock().NowMicros());
  if (!num_dropped || LogLevel::kWarning < GetLogLevel()) return;
  std::string names;
  for (const std::string& name : ignored.names) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", ParamText(name));
  }
  if (ignored.count > ignored.names.size()) absl::StrAppend(&names, ", ...");
  internal::LogLine line(LogLevel::kWarning, __FILE__, __LINE__);
  line << "request " << Named("x_request_id", request.id) << " for " << Named("path", request.path) << " has "
       << Named("num_ignored", ignored.count) << " unknown fields, which were ignored: \"" << Named("fields", names)
       << "\"";
  if (*num_dropped > 0) line << " (" << *num_dropped << " such lines were dropped)";
}

void GatewayMetrics::CountStreamStart(const std::string& path, std::chrono::steady_clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  StreamStarts& starts = stream_starts_[path];
  const auto* const bound = std::lower_bound(kStreamStartBounds.begin(), kStreamStartBounds.end(), seconds);
  ++starts.buckets[static_cast<size_t>(bound - kStreamStartBounds.begin())];
  starts.sum_s += seconds;
}

std::shared_ptr<WebExchange> GatewayMetrics::Count(std::shared_ptr<WebExchange> exchange, const std::string& path,
                                                   Kind kind) {
  return std::make_shared<Counted>(this, std::move(exchange), path, kind == Kind::kWork ? 1 : 0);
}

std::string GatewayMetrics::Page(const PortStats& port, const SpanQueue* spans) const {
  std::vector<prometheus::MetricFamily> families =
      PortMetrics([&port] { return std::vector<PortStats>{port}; }).Collect();
  prometheus::MetricFamily& answers =
      families.emplace_back(prometheus::MetricFamily{"quire_openai_answers_total",
                                                     "Answers by path and HTTP code; a stream counts when it "
                                                     "begins",
                                                     prometheus::MetricType::Counter,
                                                     {}});
  for (const auto& [key, count] : answers_) {
    prometheus::ClientMetric& metric = answers.metric.emplace_back();
    metric.label = {{"path", key.first}, {"code", absl::StrCat(key.second)}};
    metric.counter.value = static_cast<double>(count);
  }
  prometheus::MetricFamily& ignored =
      families.emplace_back(prometheus::MetricFamily{"quire_openai_ignored_fields_total",
                                                     "Unknown fields of requests that were ignored, by path",
                                                     prometheus::MetricType::Counter,
                                                     {}});
  for (const auto& [path, count] : ignored_fields_) {
    prometheus::ClientMetric& metric = ignored.metric.emplace_back();
    metric.label = {{"path", path}};
    metric.counter.value = static_cast<double>(count);
  }
  prometheus::MetricFamily& starts =
      families.emplace_back(prometheus::MetricFamily{"quire_openai_stream_start_seconds",
                                                     "Time from the body of a request to the first event of its stream",
                                                     prometheus::MetricType::Histogram,
                                                     {}});
  for (const auto& [path, start] : stream_starts_) {
    prometheus::ClientMetric& metric = starts.metric.emplace_back();
    metric.label = {{"path", path}};
    uint64_t count = 0;
    for (size_t i = 0; i < start.buckets.size(); ++i) {
      count += static_cast<uint64_t>(start.buckets[i]);
      const double bound =
          i < kStreamStartBounds.size() ? kStreamStartBounds[i] : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({.cumulative_count = count, .upper_bound = bound});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = start.sum_s;
  }
  prometheus::MetricFamily& running = families.emplace_back(
      prometheus::MetricFamily{"quire_openai_running",
                               "Requests to generate text or to convert tokens whose answer is not complete",
                               prometheus::MetricType::Gauge,
                               {}});
  running.metric.emplace_back().gauge.value = static_cast<double>(num_running_);
  if (spans != nullptr) {
    for (prometheus::MetricFamily& family : SpanMetrics(spans).Collect()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire
