// SPDX-License-Identifier: Apache-2.0

#include "client/load/load_report.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace quire {
namespace {

// The generator kept up if at most one request in a hundred was sent later than this.
constexpr double kMaxLagMs = 50;

struct Times {
  const char* name;
  const char* title;
  const Samples* ms;
};

std::vector<Times> TimesOf(const LoadReport& report) {
  return {{"ttft", "Time to first token", &report.ttft_ms},
          {"tpot", "Time per output token", &report.tpot_ms},
          {"itl", "Inter-token latency", &report.itl_ms},
          {"e2el", "End-to-end latency", &report.e2el_ms}};
}

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// "resource_exhausted", as proto and metrics spell it.
std::string CodeName(absl::StatusCode code) {
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

bool ParseMilliseconds(absl::string_view text, double* ms) {
  absl::Duration duration;
  if (!absl::SimpleAtod(text, ms)) {
    if (!absl::ParseDuration(text, &duration)) return false;
    *ms = absl::ToDoubleMilliseconds(duration);
  }
  return std::isfinite(*ms) && *ms > 0;
}

void AppendLine(std::string* text, const char* title, const std::string& value) {
  absl::StrAppendFormat(text, "%-36s %s\n", title, value);
}

void AppendTimes(std::string* text, const Times& times) {
  const Samples& ms = *times.ms;
  absl::StrAppendFormat(text, "%-24s", times.title);
  for (const double value : {ms.Mean(), ms.Median(), ms.Quantile(0.9), ms.Quantile(0.99), ms.Max()}) {
    absl::StrAppendFormat(text, " %10s", ms.size() > 0 ? absl::StrFormat("%.2f", value) : "-");
  }
  absl::StrAppend(text, "\n");
}

// The rate between the first request and the last. Returns nothing with fewer than two requests or when all were sent
// at once.
std::optional<double> SentRate(const LoadReport& report) {
  if (report.num_sent < 2 || report.sending_s <= 0) return std::nullopt;
  return PerSecond(report.num_sent - 1, report.sending_s);
}

nlohmann::ordered_json NumberOrNull(bool is_known, double value) {
  return is_known ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

// Tells the reader what limits the meaning of the numbers.
std::string Warnings(const LoadReport& report) {
  std::string text;
  if (report.held_ms.size() > 0) {
    absl::StrAppendFormat(&text,
                          "warning: --max-in-flight held %d requests back, for up to %.0f ms; their latencies include "
                          "it\n",
                          report.held_ms.size(), report.held_ms.Max());
  }
  if (report.num_unsent > 0) {
    absl::StrAppendFormat(&text,
                          "warning: %d requests that had arrived were not sent before --duration was over; no latency "
                          "includes them\n",
                          report.num_unsent);
  }
  if (report.could_not_keep_up()) {
    absl::StrAppendFormat(&text,
                          "warning: this machine could not keep up: 1 %% of the requests were sent over %.0f ms late. "
                          "Latencies count from when they should have been sent\n",
                          report.lag_ms.Quantile(0.99));
  }
  return text;
}

}  // namespace

absl::StatusOr<ServiceLevel> ParseServiceLevel(absl::string_view text) {
  ServiceLevel level;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(part, absl::MaxSplits(':', 1));
    std::optional<double>* limit = entry.first == "ttft"   ? &level.ttft_ms
                                   : entry.first == "tpot" ? &level.tpot_ms
                                   : entry.first == "itl"  ? &level.itl_ms
                                   : entry.first == "e2el" ? &level.e2el_ms
                                                           : nullptr;
    double ms = 0;
    if (limit == nullptr || !ParseMilliseconds(entry.second, &ms)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has \"", part, "\", expected NAME:TIME with ttft, tpot, itl or e2el and a time such as 500ms or 2s"));
    }
    *limit = ms;
  }
  return level;
}

int64_t LoadReport::num_failed() const {
  int64_t num_failed = 0;
  for (const auto& [code, count] : failures) num_failed += count;
  return num_failed;
}

bool LoadReport::could_not_keep_up() const {
  return 100 * lag_ms.CountAbove(kMaxLagMs) > lag_ms.size();
}

nlohmann::ordered_json ToJson(const LoadReport& report) {
  nlohmann::ordered_json json = {
      {"duration", report.duration_s},
      {"num_prompts", report.num_sent},
      {"completed", report.num_completed},
      {"failed", report.num_failed()},
      {"cancelled", report.num_cancelled},
      {"unsent", report.num_unsent},
      {"failed_by_code", nlohmann::ordered_json::object()},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"total_cached_tokens", report.cached_tokens},
      {"sent_rate", NumberOrNull(SentRate(report).has_value(), SentRate(report).value_or(0))},
      {"request_throughput", PerSecond(report.num_completed, report.duration_s)},
      {"request_goodput", nullptr},
      {"good_request_share", nullptr},
      {"input_throughput", PerSecond(report.input_tokens, report.duration_s)},
      {"output_throughput", PerSecond(report.output_tokens, report.duration_s)},
      {"total_token_throughput", PerSecond(report.input_tokens + report.output_tokens, report.duration_s)},
      {"max_concurrent_requests", report.max_in_flight},
      {"preemptions", nullptr}};
  for (const auto& [code, count] : report.failures) json["failed_by_code"][CodeName(code)] = count;
  if (report.has_service_level) {
    json["request_goodput"] = PerSecond(report.num_good, report.duration_s);
    json["good_request_share"] = NumberOrNull(report.num_sent > 0, Share(report.num_good, report.num_sent) / 100);
  }
  if (report.num_preemptions.has_value()) json["preemptions"] = *report.num_preemptions;
  const auto add = [&](const char* name, const Samples& ms) {
    const auto put = [&](const char* statistic, double value) {
      json[absl::StrCat(statistic, "_", name, "_ms")] = NumberOrNull(ms.size() > 0, value);
    };
    put("mean", ms.Mean());
    put("median", ms.Median());
    put("std", ms.StandardDeviation());
    put("p90", ms.Quantile(0.9));
    put("p99", ms.Quantile(0.99));
    put("max", ms.Max());
  };
  for (const Times& times : TimesOf(report)) add(times.name, *times.ms);
  add("send_lag", report.lag_ms);
  json["held_requests"] = report.held_ms.size();
  json["max_held_ms"] = NumberOrNull(report.held_ms.size() > 0, report.held_ms.Max());
  json["could_not_keep_up"] = report.could_not_keep_up();
  return json;
}

std::string ToText(const LoadReport& report) {
  std::string text;
  const auto count = [](int64_t value) { return absl::StrCat(value); };
  const auto rate = [](double value) { return absl::StrFormat("%.2f", value); };
  AppendLine(&text, "Successful requests:", count(report.num_completed));
  AppendLine(&text, "Failed requests:", count(report.num_failed()));
  for (const auto& [code, number] : report.failures) {
    AppendLine(&text, absl::StrCat("  ", CodeName(code), ":").c_str(), count(number));
  }
  if (report.num_cancelled > 0) AppendLine(&text, "Cancelled requests:", count(report.num_cancelled));
  if (report.num_unsent > 0) AppendLine(&text, "Unsent requests:", count(report.num_unsent));
  AppendLine(&text, "Benchmark duration (s):", rate(report.duration_s));
  AppendLine(&text, "Total input tokens:", count(report.input_tokens));
  AppendLine(&text, "Total generated tokens:", count(report.output_tokens));
  AppendLine(&text, "Input tokens from the prefix cache:",
             absl::StrFormat("%d (%.1f %%)", report.cached_tokens, Share(report.cached_tokens, report.input_tokens)));
  if (report.num_preemptions.has_value()) {
    AppendLine(&text, "Preemptions for lack of blocks:", count(*report.num_preemptions));
  }
  // This rate counts the n - 1 intervals between n requests. So it may be below the throughput.
  AppendLine(&text, "Requests sent:",
             SentRate(report).has_value() ? absl::StrFormat("%d (%.2f per second from the first to the last)",
                                                            report.num_sent, *SentRate(report))
                                          : count(report.num_sent));
  AppendLine(&text, "Request throughput (req/s):", rate(PerSecond(report.num_completed, report.duration_s)));
  if (report.has_service_level) {
    AppendLine(&text, "Request goodput (req/s):",
               absl::StrFormat("%.2f (%.1f %% of requests)", PerSecond(report.num_good, report.duration_s),
                               Share(report.num_good, report.num_sent)));
  }
  AppendLine(&text, "Input token throughput (tok/s):", rate(PerSecond(report.input_tokens, report.duration_s)));
  AppendLine(&text, "Output token throughput (tok/s):", rate(PerSecond(report.output_tokens, report.duration_s)));
  AppendLine(&text, "Peak concurrent requests:", count(report.max_in_flight));
  absl::StrAppendFormat(&text, "\n%-24s %10s %10s %10s %10s %10s\n", "(ms)", "mean", "p50", "p90", "p99", "max");
  for (const Times& times : TimesOf(report)) AppendTimes(&text, times);
  AppendTimes(&text, {"send_lag", "Sent late by", &report.lag_ms});
  const std::string warnings = Warnings(report);
  return absl::StrCat(text, warnings.empty() ? "" : "\n", warnings);
}

}  // namespace quire
