// SPDX-License-Identifier: Apache-2.0

// Measures what one manager costs with many workers and many running sequences. The workers are real processes with
// --device=simulated, so that the manager does all its work and nothing computes.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/fleet.h"
#include "bench/fleet_load.h"
#include "worker/model/simulated_model.h"

ABSL_FLAG(int32_t, workers, 8, "Number of simulated workers.");
ABSL_FLAG(int32_t, sequences, 1024, "Number of sequences that run at the same time, on all workers together.");
ABSL_FLAG(int32_t, prompt_tokens, 32, "Tokens of each prompt.");
ABSL_FLAG(absl::Duration, step, absl::Milliseconds(250), "How long each step of a worker takes.");
ABSL_FLAG(absl::Duration, time, absl::Seconds(20), "Length of the measurement, which begins when all sequences run.");
ABSL_FLAG(absl::Duration, kill_every, absl::ZeroDuration(),
          "Interval at which a worker is killed and started again during the measurement; 0: never.");
ABSL_FLAG(int32_t, streams, 16, "Number of GenerateBatch calls that the client uses.");
ABSL_FLAG(std::string, model, "models/tales", "Model directory. Its weights are not read.");

namespace quire {
namespace {

constexpr absl::Duration kFillTimeout = absl::Minutes(5);

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "fleet",
      "measures the CPU time, the time per step and the memory of one manager with many simulated workers, and checks "
      "every token.",
      "[flags]",
      {{"Fleet:", {"workers", "step", "model"}},
       {"Load:", {"sequences", "prompt_tokens", "streams"}},
       {"Length and faults:", {"time", "kill_every"}}}};
  return *flags;
}

absl::Status WaitUntilAllRun(const FleetLoad& load, int num_sequences) {
  const absl::Time deadline = absl::Now() + kFillTimeout;
  while (load.Count().running < num_sequences) {
    QUIRE_RETURN_IF_ERROR(load.first_error());
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(load.Count().running, " of ", num_sequences,
                                                      " sequences run after ", absl::FormatDuration(kFillTimeout)));
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::OkStatus();
}

// Waits, and kills workers meanwhile. Returns the number of killed workers.
int WaitAndKill(Fleet* fleet, absl::Duration time, absl::Duration kill_every, int num_workers) {
  const absl::Time end = absl::Now() + time;
  int num_killed = 0;
  if (kill_every > absl::ZeroDuration()) {
    while (absl::Now() + kill_every < end) {
      absl::SleepFor(kill_every);
      fleet->RestartWorker(num_killed++ * 7 % num_workers);
    }
  }
  absl::SleepFor(end - absl::Now());
  return num_killed;
}

absl::Status Run() {
  const int num_workers = absl::GetFlag(FLAGS_workers);
  const int num_sequences = absl::GetFlag(FLAGS_sequences);
  const int prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  const int num_streams = absl::GetFlag(FLAGS_streams);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("workers", num_workers, 1, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("sequences", num_sequences, num_workers, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("streams", num_streams, 1, 256));
  const std::string model = std::filesystem::absolute(absl::GetFlag(FLAGS_model)).string();
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(model));
  QUIRE_ASSIGN_OR_RETURN(const simulated::TokenRule rule, TokenRuleOf(config, /*mean_output_tokens=*/0));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("prompt_tokens", prompt_tokens, 1, int64_t{config.max_position_embeddings} - 1));

  FleetOptions options;
  options.binaries = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  options.model = model;
  options.num_workers = num_workers;
  options.rows_per_worker = num_sequences / num_workers * 5 / 4 + 8;  // Placement need not be even.
  options.step = absl::GetFlag(FLAGS_step);
  options.max_batch_requests = num_sequences / num_streams + 1;
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Fleet> fleet, Fleet::Start(options));
  QUIRE_ASSIGN_OR_RETURN(const Fleet::Metrics idle, fleet->Scrape());

  FleetLoad load(fleet->endpoint(), &rule, num_streams);
  QUIRE_RETURN_IF_ERROR(load.Start(num_sequences, prompt_tokens, config.max_position_embeddings - prompt_tokens));
  QUIRE_RETURN_IF_ERROR(WaitUntilAllRun(load, num_sequences));
  std::fprintf(stderr, "all sequences run; the manager is process %d\n", fleet->manager_pid());
  const FleetLoad::Counts counts_before = load.Count();
  QUIRE_ASSIGN_OR_RETURN(const Fleet::Metrics before, fleet->Scrape());
  const absl::Time begin = absl::Now();
  const int num_killed =
      WaitAndKill(fleet.get(), absl::GetFlag(FLAGS_time), absl::GetFlag(FLAGS_kill_every), num_workers);
  QUIRE_ASSIGN_OR_RETURN(const Fleet::Metrics after, fleet->Scrape());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const FleetLoad::Counts counts = load.Count();
  const auto num_tokens = static_cast<double>(counts.tokens - counts_before.tokens);
  if (num_tokens == 0) return absl::DeadlineExceededError("no token came during the measurement; raise --time");

  std::printf("%d workers, %d sequences, %.1f s, %.0f tokens/s, %d workers killed\n", num_workers, num_sequences,
              seconds, num_tokens / seconds, num_killed);
  std::printf("CPU of the manager per token         %8.2f us\n",
              (after.cpu_seconds - before.cpu_seconds) / num_tokens * 1e6);
  for (const double quantile : {0.5, 0.99}) {
    const double plan = QuantileBetween(before.plans, after.plans, quantile);
    const double part = QuantileBetween(before.manager_parts, after.manager_parts, quantile);
    std::printf("time to make a plan, p%.0f             %8.3f ms\n", quantile * 100, plan * 1e3);
    std::printf("manager's part of a step, p%.0f        %8.3f ms\n", quantile * 100, part * 1e3);
    const double cpu = QuantileBetween(before.manager_cpu, after.manager_cpu, quantile);
    std::printf("CPU time of it, p%.0f                  %8.3f ms\n", quantile * 100, cpu * 1e3);
  }
  std::printf("memory of the manager per sequence   %8.2f KiB\n",
              (after.resident_bytes - idle.resident_bytes) / num_sequences / 1024);
  std::printf("memory of the manager                %8.1f MiB\n", after.resident_bytes / (1 << 20));
  std::printf("requests that ended, and that failed %8lld %lld\n", static_cast<long long>(counts.ended),
              static_cast<long long>(counts.failed));
  std::printf("wrong tokens                         %8lld\n", static_cast<long long>(counts.wrong_tokens));
  QUIRE_RETURN_IF_ERROR(load.first_error());
  if (counts.wrong_tokens == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(counts.wrong_tokens, " tokens are wrong"));
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
