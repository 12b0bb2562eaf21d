// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/terminal/terminal.h"

namespace quire {
namespace {

// --wait asks at these intervals.
constexpr absl::Duration kPause = absl::Milliseconds(500);

struct HealthOptions {
  std::string service;
  std::string wait;  // Empty or a duration.
};

// Says why the manager cannot use its workers, unless one is ready: waiting for them does not help. Says each sentence
// once; `told` has the earlier ones, without numbers: the epoch in a reason changes with each attempt.
void TellOfRefusedWorkers(Client& client, std::set<std::string>* told) {
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return;
  const auto& workers = status->workers();
  if (std::any_of(workers.begin(), workers.end(),
                  [](const v1::WorkerStatus& worker) { return worker.state() == v1::WORKER_STATE_READY; })) {
    return;
  }
  for (const v1::WorkerStatus& worker : workers) {
    if (worker.state() != v1::WORKER_STATE_REFUSED) continue;
    const std::string sentence =
        absl::StrCat("the worker ", worker.address(), " is refused: ", Printable(worker.last_error()));
    std::string key = sentence;
    std::erase_if(key, absl::ascii_isdigit);
    key.insert(0, worker.address());
    if (told->insert(key).second) std::fprintf(stderr, "quirectl: %s\n", sentence.c_str());
  }
}

// Asks until the service serves or `wait` is over, or until the answer shows that waiting cannot help. Without a wait,
// asks once. Says which workers are refused.
absl::StatusOr<bool> WaitUntilServing(const std::string& service, const ClientOptions& options, absl::Duration wait) {
  const absl::Time end = absl::Now() + wait;
  const bool is_limited = wait > absl::ZeroDuration();
  std::set<std::string> told;
  while (true) {
    // A new client makes a new connection, instead of waiting until gRPC tries again.
    ClientOptions limited = options;
    if (is_limited) {
      limited.timeout = std::min(options.timeout, std::max(end - absl::Now(), absl::Milliseconds(100)));
    }
    Client client(limited);
    const absl::StatusOr<bool> is_serving = client.IsServing(service);
    if (is_serving.ok() && !*is_serving) TellOfRefusedWorkers(client, &told);
    const absl::StatusCode code = is_serving.status().code();
    const bool may_come = is_serving.ok()
                              ? !*is_serving
                              : code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
    const absl::Time now = absl::Now();
    if (!may_come || now >= end) return is_serving;
    absl::SleepFor(std::min(kPause, end - now));
  }
}

int RunHealth(const HealthOptions& options, const CommandContext& context) {
  absl::Duration wait;
  if (!options.wait.empty()) absl::ParseDuration(options.wait, &wait);  // Was checked before.
  const absl::StatusOr<bool> is_serving = WaitUntilServing(options.service, context.client, wait);
  if (is_serving.status().code() == absl::StatusCode::kNotFound) {
    std::fprintf(stderr, "quirectl: the manager has no service \"%s\"; there are liveness, readiness, %s and %s\n",
                 absl::Utf8SafeCHexEscape(options.service).c_str(), v1::InferenceService::service_full_name(),
                 v1::AdminService::service_full_name());
    return kExitRejected;
  }
  if (!is_serving.ok()) return ReportError(is_serving.status(), context.client.endpoint);
  const char* const text = *is_serving ? "SERVING" : "NOT_SERVING";
  std::printf(context.format == OutputFormat::kJson ? "{\"status\":\"%s\"}\n" : "%s\n", text);
  if (*is_serving) return kExitOk;
  if (!options.wait.empty()) {
    FlushOutput();
    std::fprintf(stderr, "quirectl: it does not serve after %s; `quirectl status` shows the workers\n",
                 options.wait.c_str());
  }
  return kExitUnavailable;
}

}  // namespace

void AddHealthCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("health", "Exit with 0 when the manager serves, with 3 when it does not.", RunHealth);
  AddOption(command, "service", &options->service, " ",
            "liveness, readiness or the full name of a service; empty means the whole server");
  AddOption(command, "--wait", &options->wait, "DURATION", "Wait until it serves, but not longer than this")
      ->check(IsDuration());
}

}  // namespace quire
