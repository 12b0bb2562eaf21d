// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "tests/sim/cluster_sim.h"
#include "tests/sim/isolated_run.h"
#include "tests/sim/scenario_draw.h"
#include "tests/sim/stream_sim.h"

namespace quire {
namespace {

constexpr uint64_t kSeedsPerRepetition = 16;  // Number of seeds of which one runs twice.

using WallClock = std::chrono::steady_clock;

// What a process reports to its parent, in shared memory. The parent reads `events` at any time, and everything else
// when the process has ended.
struct Shared {
  std::atomic<uint64_t> seed;
  std::atomic<int64_t> events;
  SimReport report;
  char message[1000];
};

// Runs every `jobs`th seed, beginning with seed number `job`. Returns false at the first failure.
bool RunSeeds(const SearchOptions& options, int job, WallClock::time_point end, Shared* shared) {
  for (uint64_t i = job; options.seeds == 0 || i < static_cast<uint64_t>(options.seeds); i += options.jobs) {
    if (options.seconds > 0 && WallClock::now() >= end) return true;
    if (options.events > 0 && shared->events >= options.events / options.jobs) return true;
    const uint64_t seed = options.first_seed + i;
    shared->seed = seed;
    LimitRun();
    const Scenario scenario = DrawScenario(seed);
    absl::Status status = RunScenario(scenario, seed % kSeedsPerRepetition == 0, &shared->report);
    if (status.ok()) status = RunStreamScenario(seed);
    shared->events = shared->report.events;
    if (status.ok()) continue;
    std::strncpy(shared->message, std::string(status.message()).c_str(), sizeof(shared->message) - 1);
    return false;
  }
  return true;
}

}  // namespace

absl::Status RunScenario(const Scenario& scenario, bool is_run_twice, SimReport* report) {
  SetLogLevel(LogLevel::kError);  // Lost workers would fill the log.
  ClusterSim sim(scenario);
  const absl::Status status = sim.Run();
  report->Add(sim.Report());
  QUIRE_RETURN_IF_ERROR(status);
  if (!is_run_twice) return absl::OkStatus();
  ClusterSim again(scenario);
  QUIRE_RETURN_IF_ERROR(again.Run());
  report->Add(again.Report());
  if (again.digest() != sim.digest()) return absl::InternalError("equal calls gave other plans");
  return absl::OkStatus();
}

SearchResult Search(const SearchOptions& options) {
  const size_t size = sizeof(Shared) * options.jobs;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  QUIRE_CHECK(memory != MAP_FAILED) << "mmap of " << size << " bytes";
  Shared* const shared = new (memory) Shared[options.jobs]();
  const WallClock::time_point start = WallClock::now();
  const auto end = start + std::chrono::microseconds(static_cast<int64_t>(options.seconds * 1e6));

  std::vector<pid_t> processes;
  std::vector<int> outputs;  // Files with their standard error, to which a failed check writes.
  for (int job = 0; job < options.jobs; ++job) {
    outputs.push_back(memfd_create("output", 0));
    processes.push_back(StartProcess([&, job] { return RunSeeds(options, job, end, &shared[job]); }, outputs.back()));
  }
  SearchResult result;
  for (int num_left = options.jobs; num_left > 0; --num_left) {
    int wait_status = 0;
    const pid_t process = wait(&wait_status);
    const auto job = std::find(processes.begin(), processes.end(), process) - processes.begin();
    result.report.Add(shared[job].report);
    processes[job] = 0;
    const bool was_killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    if (was_killed || (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)) continue;
    if (!result.failed_seed.has_value() || shared[job].seed < *result.failed_seed) {
      char output[4096];
      const ssize_t length = std::max<ssize_t>(pread(outputs[job], output, sizeof(output), 0), 0);
      result.failed_seed = shared[job].seed;
      result.message =
          shared[job].message[0] != 0 ? shared[job].message : DescribeEnd(wait_status, std::string(output, length));
    }
    for (const pid_t other : processes) {
      if (other != 0) kill(other, SIGKILL);
    }
  }
  result.seconds = std::chrono::duration<double>(WallClock::now() - start).count();
  for (const int output : outputs) close(output);
  munmap(memory, size);
  return result;
}

}  // namespace quire
