// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/quire_sim.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "tests/sim/isolated_run.h"
#include "tests/sim/mutant_runs.h"
#include "tests/sim/scenario.h"
#include "tests/sim/scenario_draw.h"
#include "tests/sim/search.h"
#include "tests/sim/shrink.h"
#include "tests/sim/soak.h"
#include "tests/sim/stream_sim.h"

ABSL_FLAG(int64_t, seeds, 0, "Number of scenarios to run; 0: as many as the other limits allow.");
ABSL_FLAG(int64_t, events, 0, "Number of events after which it ends; 0: no limit.");
ABSL_FLAG(double, seconds, 0,
          "Time in seconds after which it ends; 0: no limit. With --mutants: the limit for each mutant; 0: 60.");
ABSL_FLAG(uint64_t, first_seed, 1, "The first seed.");
ABSL_FLAG(uint64_t, seed, 0, "Runs the scenario of this seed only, and shrinks it if it fails.");
ABSL_FLAG(int32_t, jobs, 2, "Number of processes that run scenarios.");
ABSL_FLAG(std::string, replay, "", "Runs the scenario in this file, as a failure prints it.");
ABSL_FLAG(absl::Duration, soak, absl::ZeroDuration(),
          "Runs one long scenario for this simulated time, such as 24h, with the seed of --seed or 1.");
ABSL_FLAG(bool, no_shrink, false, "Does not shrink a scenario that fails.");
ABSL_FLAG(bool, mutants, false, "Runs the simulators with a planted bug, each until its bug is caught.");
ABSL_FLAG(std::string, mutants_folder, "",
          "The folder of the simulators with a planted bug; empty: mutants/ beside this program.");
ABSL_FLAG(std::string, only, "", "Runs only mutants whose name contains this.");

namespace quire {
namespace {

constexpr int kMaxShrinkAttempts = 4000;

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-sim",
      "Runs the manager's step loop with its scheduler, block manager, prefix cache and placement against workers that "
      "check every slot they read, over scenarios drawn from seeds. An event is a call into the core that has work to "
      "do "
      "(submit, cancel, plan, commit, loss of a worker) or a slice that a worker executes. Exits with 1 at the first "
      "failure. The output is then the shrunk scenario, which --replay runs again.",
      "--seconds 60",
      {{"What to run", {"seeds", "events", "seconds", "first_seed", "seed", "replay", "soak", "jobs"}},
       {"Failures", {"no_shrink"}},
       {"Planted bugs", {"mutants", "mutants_folder", "only"}}}};
  return *flags;
}

absl::Status Isolated(const Scenario& scenario) {
  return RunIsolated([&] {
    SimReport report;
    return RunScenario(scenario, /*is_run_twice=*/true, &report);
  });
}

// Prints the text as a comment, so that the whole output of a failure can be replayed.
void PrintComment(const std::string& text) {
  std::printf("# %s\n", text.c_str());
}

void PrintShrunk(const Scenario& scenario) {
  const Scenario small = Shrink(
      scenario, [](const Scenario& smaller) { return !Isolated(smaller).ok(); }, kMaxShrinkAttempts);
  PrintComment(absl::StrCat("shrunk to ", small.events.size(), " events: ", Isolated(small).message()));
  std::printf("%s", PrintScenario(small).c_str());
}

int ReportFailure(const Scenario& scenario, const std::string& name, const std::string& message) {
  PrintComment(absl::StrCat("quire-sim ", name, " fails: ", message));
  if (!absl::GetFlag(FLAGS_no_shrink)) PrintShrunk(scenario);
  return 1;
}

int RunOne(const Scenario& scenario, const std::string& name) {
  const absl::Status status = Isolated(scenario);
  if (!status.ok()) return ReportFailure(scenario, name, std::string(status.message()));
  std::printf("%s: no failure\n", name.c_str());
  return 0;
}

// Runs the scenario of a seed, and its stream, which there is no need to shrink.
int RunSeed(uint64_t seed, const std::string& message = "") {
  const std::string name = absl::StrCat("--seed ", seed);
  const absl::Status status = RunIsolated([seed] { return RunStreamScenario(seed); });
  if (status.ok())
    return message.empty() ? RunOne(DrawScenario(seed), name) : ReportFailure(DrawScenario(seed), name, message);
  PrintComment(absl::StrCat("quire-sim ", name, " fails: ", status.message()));
  return 1;
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--replay: cannot read '", path, "'"));
  std::stringstream text;
  text << file.rdbuf();
  return ParseScenario(text.str());
}

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void PrintReport(const SearchResult& result) {
  const SimReport& r = result.report;
  const auto print = [](const char* name, int64_t value) { std::printf("  %-18s %12lld\n", name, (long long)value); };
  std::printf("%lld scenarios, %lld events in %.1f s: %.0f events/s\n", (long long)r.scenarios, (long long)r.events,
              result.seconds, static_cast<double>(r.events) / result.seconds);
  print("requests", r.requests);
  print("refused", r.refused);
  print("displaced", r.displaced);
  print("moved", r.moved);
  print("  to idle workers", r.rebalanced);
  print("  to other numerics", r.renumbered);
  print("managers lost", r.manager_losses);
  print("restored", r.restored);
  print("  without a token", r.begun_again);
  print("  other numerics", r.restored_renumbered);
  print("lost with tokens", r.lost_renumbered);
  print("left behind", r.left_behind);
  print("started again", r.resubmitted);
  print("cancelled", r.cancelled);
  print("past deadline", r.expired);
  print("beam searches", r.searches);
  print("plans", r.plans);
  print("tokens emitted", r.tokens);
  print("preemptions", r.preemptions);
  print("swap-outs", r.swap_outs);
  print("forks", r.forks);
  print("copies on write", r.copies);
  print("evictions", r.evictions);
  print("pins", r.pins);
  print("  beyond a limit, or short", r.failed_pins);
  print("cached tokens", r.cached_tokens);
  print("worker deaths", r.losses);
  print("worker drains", r.drains);
  print("pool changes", r.pool_changes);
  print("lost requests", r.failed);
  print("  told of numerics", r.failed_for_numerics);
  print("convicted requests", r.convicted);
  print("requests whose sequences failed", r.reported);
  print("table audits", r.audits);
  print("blocks probed", r.probed_blocks);
  print("  walked at the end", r.walked_blocks);
  print("full counts", r.checks);
  std::printf("  recomputed tokens: %.1f %% of all, %.1f %% where somebody waited in most steps\n",
              Percent(r.recomputed_tokens, r.scheduled_tokens),
              Percent(r.crowded_recomputed_tokens, r.crowded_scheduled_tokens));
}

int RunSearch() {
  SearchOptions options;
  options.first_seed = absl::GetFlag(FLAGS_first_seed);
  options.seeds = absl::GetFlag(FLAGS_seeds);
  options.events = absl::GetFlag(FLAGS_events);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.jobs = absl::GetFlag(FLAGS_jobs);
  if (options.seeds == 0 && options.events == 0 && options.seconds == 0) options.seeds = 10000;
  const SearchResult result = Search(options);
  if (result.failed_seed.has_value()) return RunSeed(*result.failed_seed, result.message);
  PrintReport(result);
  return 0;
}

// The share by which the heap may grow after the second quiet moment.
constexpr double kMaxHeapGrowth = 0.03;
constexpr int64_t kQuietPeriodUs = int64_t{3600} * 1'000'000;
constexpr absl::Duration kMinSoak = absl::Minutes(10);

// Prints a row for each quiet moment.
int RunSoakOf(absl::Duration length) {
  if (length < kMinSoak) {
    std::fprintf(stderr, "quire-sim: --soak is %s, it must be at least 10m\n", absl::FormatDuration(length).c_str());
    return 2;
  }
  SoakOptions options;
  options.length_us = absl::ToInt64Microseconds(length);
  options.quiet_us = std::min(kQuietPeriodUs, options.length_us / 4);
  options.seed = std::max<uint64_t>(absl::GetFlag(FLAGS_seed), 1);
  std::vector<QuietMoment> moments;
  std::map<std::string, int64_t> num_faults;
  const absl::Time start = absl::Now();
  std::printf("| hour | requests | tokens | steps | heap (KiB) | resident (MiB) |\n|---:|---:|---:|---:|---:|---:|\n");
  const auto on_quiet = [&](const QuietMoment& moment) {
    moments.push_back(moment);
    const SimReport& report = moment.report;
    std::printf("| %.2f | %lld | %lld | %lld | %.1f | %.1f |\n", moment.hour, (long long)report.requests,
                (long long)report.tokens, (long long)report.plans, static_cast<double>(moment.heap_bytes) / 1024,
                static_cast<double>(moment.resident_bytes) / (1 << 20));
    std::fflush(stdout);
  };
  absl::Status status = RunSoak(options, on_quiet, &num_faults);
  if (status.ok()) {
    const double grown = static_cast<double>(moments.back().heap_bytes) / static_cast<double>(moments[1].heap_bytes);
    if (grown > 1 + kMaxHeapGrowth) status = absl::InternalError(absl::StrCat("the heap has grown to ", grown));
  }
  if (!status.ok()) {
    PrintComment(absl::StrCat("quire-sim --soak fails: ", status.message()));
    return 1;
  }
  SearchResult result;
  result.report = moments.back().report;
  result.report.scenarios = 1;
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  PrintReport(result);
  for (const auto& [name, count] : num_faults) std::printf("  %-34s %lld\n", name.c_str(), (long long)count);
  return 0;
}

int Run(const char* program) {
  if (absl::Status status = CheckFlagRange("jobs", absl::GetFlag(FLAGS_jobs), 1, 256); !status.ok()) {
    std::fprintf(stderr, "quire-sim: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  if (absl::GetFlag(FLAGS_mutants)) {
    std::string folder = absl::GetFlag(FLAGS_mutants_folder);
    if (folder.empty()) folder = (std::filesystem::path(program).parent_path() / "mutants").string();
    const double seconds = absl::GetFlag(FLAGS_seconds) > 0 ? absl::GetFlag(FLAGS_seconds) : 60;
    return CatchMutants(folder, absl::GetFlag(FLAGS_only), seconds, absl::GetFlag(FLAGS_jobs)) ? 0 : 1;
  }
  if (const absl::Duration length = absl::GetFlag(FLAGS_soak); length > absl::ZeroDuration()) return RunSoakOf(length);
  if (!absl::GetFlag(FLAGS_replay).empty()) {
    const absl::StatusOr<Scenario> scenario = ReadScenario(absl::GetFlag(FLAGS_replay));
    if (scenario.ok()) return RunOne(*scenario, absl::StrCat("--replay ", absl::GetFlag(FLAGS_replay)));
    std::fprintf(stderr, "quire-sim: %s\n", std::string(scenario.status().message()).c_str());
    return 2;
  }
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  return seed > 0 ? RunSeed(seed) : RunSearch();
}

}  // namespace

int RunQuireSim(int argc, const char* const* argv) {
  const auto text = ReadFlags(Flags(), {argv + 1, static_cast<size_t>(argc - 1)});
  if (!text.ok()) {
    std::fprintf(stderr, "quire-sim: %s\n", std::string(text.status().message()).c_str());
    return 2;
  }
  if (text->has_value()) {
    std::printf("%s", (*text)->c_str());
    return 0;
  }
  return Run(argv[0]);
}

}  // namespace quire
