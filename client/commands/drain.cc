// SPDX-License-Identifier: Apache-2.0

// `quirectl drain` and `quirectl undrain`.

#include <cstdio>

#include "absl/time/clock.h"
#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"

namespace quire {
namespace {

constexpr absl::Duration kDrainPollInterval = absl::Milliseconds(200);

struct DrainOptions {
  std::string worker;
  bool migrates = false;
  bool waits = false;
  double timeout_s = 0;  // 0 means no limit.
};

struct UndrainOptions {
  std::string worker;
};

int WaitForDrain(Client& client, const DrainOptions& options, const CommandContext& context) {
  FlushOutput();
  const absl::Time give_up =
      options.timeout_s > 0 ? absl::Now() + absl::Seconds(options.timeout_s) : absl::InfiniteFuture();
  while (true) {
    // A second Drain changes nothing. It returns how many requests are left, including those that are not queued yet.
    const absl::StatusOr<v1::DrainResponse> left = client.Drain(options.worker, options.migrates);
    if (!left.ok()) return ReportError(left.status(), context.client.endpoint);
    if (left->num_requests() == 0) break;
    if (absl::Now() >= give_up) {
      std::fprintf(stderr, "quirectl: worker %s still has %s after %g s; it keeps draining\n", options.worker.c_str(),
                   Counted(left->num_requests(), "request").c_str(), options.timeout_s);
      return kExitUnavailable;
    }
    absl::SleepFor(kDrainPollInterval);
  }
  if (context.format == OutputFormat::kText) {
    std::printf("worker %s has no requests any more\n", options.worker.c_str());
  }
  return kExitOk;
}

int RunDrain(const DrainOptions& options, const CommandContext& context) {
  Client client(context.client);
  const absl::StatusOr<v1::DrainResponse> response = client.Drain(options.worker, options.migrates);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("worker %s drains: it has %s\n", options.worker.c_str(),
                Counted(response->num_requests(), "request").c_str());
  }
  return options.waits ? WaitForDrain(client, options, context) : kExitOk;
}

int RunUndrain(const UndrainOptions& options, const CommandContext& context) {
  Client client(context.client);
  const absl::Status status = client.Undrain(options.worker);
  if (!status.ok()) return ReportError(status, context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(v1::UndrainResponse());
  } else {
    std::printf("worker %s gets requests again\n", options.worker.c_str());
  }
  return kExitOk;
}

}  // namespace

void AddDrainCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "drain",
      "Place no more requests on a worker. The requests that it has finish there, or move with --migrate. This lasts "
      "until `quirectl undrain` or the manager's end.",
      RunDrain);
  AddWorkerArgument(command, &options->worker);
  command->add_flag("--migrate", options->migrates,
                    "Move its requests to other workers with the same model and numerics that have room for them");
  command->add_flag("--wait", options->waits, "Return when the worker has no requests any more");
  AddOption(command, "--timeout", &options->timeout_s, "SECONDS [0]",
            "Stop waiting after this time and exit with 3; 0 means no limit; needs --wait")
      ->transform(InSeconds<double>(0, 1e6))
      ->needs("--wait");
}

void AddUndrainCommand(CommandList* list) {
  const auto [command, options] = list->Add("undrain", "Place requests on a worker again.", RunUndrain);
  AddWorkerArgument(command, &options->worker);
}

}  // namespace quire
