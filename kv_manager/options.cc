#include "kv_manager/options.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/flags.h"
#include "base/status.h"

ABSL_FLAG(
    std::string, workers, "127.0.0.1:50061",
    "Where the workers are, separated by commas: host:port, unix:path, or dns:///name:port for every address that "
    "the name has; such a name is looked up again every few seconds.");
ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "Where to serve gRPC: host:port or unix:path. Port 0 takes a free one and prints it.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9460", "Where to serve Prometheus' /metrics; empty: nowhere.");
ABSL_FLAG(int32_t, max_tokens_per_step, 2048, "Tokens of one step at most; a worker may allow less.");
ABSL_FLAG(int32_t, max_chunk_tokens, 512, "Tokens of one sequence in one step at most: longer prompts take several.");
ABSL_FLAG(int32_t, max_waiting_requests, 1024, "Requests that may wait for a worker; more are refused.");
ABSL_FLAG(int32_t, max_context_tokens, 0, "Prompt and output together at most; 0: what the model was made for.");
ABSL_FLAG(double, watermark, 0.05, "Share of the blocks that stays free when a request is admitted.");
ABSL_FLAG(std::string, policy, "fcfs",
          "Who is served first: fcfs (by arrival) or priority (by priority, then arrival).");
ABSL_FLAG(int32_t, max_plans_in_flight, 2, "2: the next step is planned and sent while the worker runs the last one.");
ABSL_FLAG(absl::Duration, step_timeout, absl::Seconds(60), "A worker that does not finish a step in time is given up.");
ABSL_FLAG(absl::Duration, worker_grace, absl::Seconds(30), "How long requests wait for a lost worker to come back.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30), "After SIGTERM, how long running requests may go on.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");

namespace quire {
namespace {

// In the order of --help.
constexpr const char* kFlags[] = {"workers",
                                  "listen",
                                  "metrics_listen",
                                  "max_tokens_per_step",
                                  "max_chunk_tokens",
                                  "max_waiting_requests",
                                  "max_context_tokens",
                                  "watermark",
                                  "policy",
                                  "max_plans_in_flight",
                                  "step_timeout",
                                  "worker_grace",
                                  "drain_timeout",
                                  "log_level"};

absl::Status CheckCount(const absl::Flag<int32_t>& flag, int min, int max = 1 << 30) {
  const int value = absl::GetFlag(flag);
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(FlagAsTyped(flag.Name()), " is ", value, ", it must be ", min, " .. ", max));
}

absl::StatusOr<absl::Duration> PositiveDuration(const absl::Flag<absl::Duration>& flag) {
  const absl::Duration value = absl::GetFlag(flag);
  if (value > absl::ZeroDuration() && value <= absl::Hours(24)) return value;
  return absl::InvalidArgumentError(absl::StrCat(FlagAsTyped(flag.Name()), " is ", absl::FormatDuration(value),
                                                 ", it must be more than 0 and at most 24h"));
}

template <typename T, size_t n>
absl::StatusOr<T> Choose(const absl::Flag<std::string>& flag, const std::pair<const char*, T> (&choices)[n]) {
  const std::string value = absl::GetFlag(flag);
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(FlagAsTyped(flag.Name()), " is '", value, "', it must be one of ", names));
}

bool IsBadDnsTarget(absl::string_view target) {
  if (!absl::ConsumePrefix(&target, "dns:///")) return false;
  const size_t colon = target.rfind(':');
  return colon == absl::string_view::npos || colon == 0 || colon + 1 == target.size();
}

absl::StatusOr<std::vector<std::string>> Workers() {
  const std::string value = absl::GetFlag(FLAGS_workers);
  std::vector<std::string> workers = absl::StrSplit(value, ',');
  for (const std::string& worker : workers) {
    if (worker.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--workers is '", value, "', it has an empty address"));
    }
    if (IsBadDnsTarget(worker)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--workers is '", value, "', '", worker, "' in it must be dns:///name:port"));
    }
  }
  return workers;
}

absl::StatusOr<SchedulerOptions> MakeSchedulerOptions() {
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_tokens_per_step, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_chunk_tokens, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_waiting_requests, 1));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_context_tokens, 0));
  QUIRE_RETURN_IF_ERROR(CheckCount(FLAGS_max_plans_in_flight, 1, 2));
  SchedulerOptions options;
  options.max_tokens_per_step = absl::GetFlag(FLAGS_max_tokens_per_step);
  options.max_chunk_tokens = absl::GetFlag(FLAGS_max_chunk_tokens);
  options.max_waiting_requests = absl::GetFlag(FLAGS_max_waiting_requests);
  options.max_context_tokens = absl::GetFlag(FLAGS_max_context_tokens);
  if (options.max_context_tokens == 0) options.max_context_tokens = std::numeric_limits<int>::max();
  if (options.max_context_tokens == 1) {
    return absl::InvalidArgumentError("--max-context-tokens is 1, it must be 0 or at least 2");
  }
  options.max_plans_in_flight = absl::GetFlag(FLAGS_max_plans_in_flight);
  options.watermark = absl::GetFlag(FLAGS_watermark);
  if (!(options.watermark >= 0 && options.watermark < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--watermark is ", options.watermark, ", it must be in [0, 1)"));
  }
  QUIRE_ASSIGN_OR_RETURN(options.policy,
                         Choose<SchedulingPolicy>(FLAGS_policy, {{"fcfs", SchedulingPolicy::kFcfs},
                                                                 {"priority", SchedulingPolicy::kPriority}}));
  return options;
}

}  // namespace

absl::StatusOr<ManagerOptions> ParseOptions(absl::Span<const char* const> args) {
  QUIRE_RETURN_IF_ERROR(SetFlags(args, kFlags));
  ManagerOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.workers, Workers());
  options.listen = absl::GetFlag(FLAGS_listen);
  if (options.listen.empty()) return absl::InvalidArgumentError("--listen is empty, expected host:port or unix:path");
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  QUIRE_ASSIGN_OR_RETURN(options.scheduler, MakeSchedulerOptions());
  QUIRE_ASSIGN_OR_RETURN(options.step_timeout, PositiveDuration(FLAGS_step_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.worker_grace, PositiveDuration(FLAGS_worker_grace));
  QUIRE_ASSIGN_OR_RETURN(options.drain_timeout, PositiveDuration(FLAGS_drain_timeout));
  QUIRE_ASSIGN_OR_RETURN(options.log_level, Choose<LogLevel>(FLAGS_log_level, {{"debug", LogLevel::kDebug},
                                                                               {"info", LogLevel::kInfo},
                                                                               {"warning", LogLevel::kWarning},
                                                                               {"error", LogLevel::kError}}));
  return options;
}

bool HasFlag(absl::Span<const char* const> args, absl::string_view flag) {
  return std::find(args.begin(), args.end(), flag) != args.end();
}

std::string OptionsHelp() {
  return absl::StrCat(
      "quire-manager serves a large language model from the KV memory of its workers.\n\n"
      "Usage: quire-manager [--flag=value ...]\n\n",
      DescribeFlags(kFlags), "  --version\n      Print the version.\n");
}

}  // namespace quire
