// SPDX-License-Identifier: Apache-2.0

// Runs a manager and two workers under a mixed load while faults happen. See README.md.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/flags.h"
#include "tests/chaos/chaos_program.h"
#include "tests/chaos/faults.h"
#include "tests/chaos/mixed_load.h"
#include "tests/chaos/mixed_work.h"
#include "tests/chaos/process_state.h"
#include "tests/e2e/cluster.h"

ABSL_FLAG(double, minutes, 30, "How long the load runs.");
ABSL_FLAG(uint64_t, seed, 1, "The seed of the load and of the faults.");
ABSL_FLAG(int32_t, clients, 6, "Number of clients, each with one call at a time.");

namespace quire {
namespace {

constexpr int kMaxConnections = 200;
// A process has the same number of files and threads at each look, except for a few connections that are about to end
// and threads that gRPC keeps for a while.
constexpr int kMaxMoreFiles = 4;
constexpr int kMaxMoreThreads = 8;
// A process gives memory back only when it has grown by 16 MiB.
constexpr double kMaxMoreMib = 24;

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-soak",
      "Starts a manager and two workers, runs a mixed load and lets faults happen: workers are killed, hang, drain, "
      "come back with other pools and roll out another model; clients vanish, send half a message, hold connections, "
      "send compressed messages and stop reading the log. Every output is compared with the output of a calm run. "
      "Exits with 1 if an output is wrong, a request fails, the service stops, or memory, files or threads of a "
      "process grow.",
      "--minutes 30",
      {{"Run", {"minutes", "seed", "clients"}}}};
  return *flags;
}

// A model with random weights and a tokenizer of its own. The destructor removes it.
class OtherModel {
 public:
  OtherModel() {
    char folder[] = "/tmp/quire-soak.XXXXXX";
    QUIRE_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    Process process(
        {Binary("make_model"), absl::StrCat("--output=", path()), "--preset=tiny", "--dtype=f32", "--context=2048"});
    QUIRE_CHECK_EQ(process.Wait(), 0) << process.Output();
  }
  ~OtherModel() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/other"; }

 private:
  std::string folder_;
};

// The processes at a moment at which no request ran.
struct Look {
  double minute;
  ProcessState manager;
  ProcessState workers[2];
};

class Soak {
 public:
  Soak() : randoms_{Random(seed()), Random(seed() + 1)} {}

  // Returns whether nothing was wrong. Called once.
  bool Run() {
    Learn(&cluster_.client());
    {
      Cluster calm({.model = other_.path(), .manager_flags = {"--vllm-metrics=false"}});
      Learn(&calm.client());
    }
    const absl::Duration length = absl::Minutes(absl::GetFlag(FLAGS_minutes));
    interval_ = std::min(length / 10, absl::Minutes(1));
    std::printf(
        "| minute | read to the end | cancelled | expired | errors | manager: MiB, files, threads "
        "| worker 0 | worker 1 |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    start_ = absl::Now();
    load_ = std::make_unique<MixedLoad>(cluster_.endpoint(), &book_, absl::GetFlag(FLAGS_clients), seed());
    // The connections of the load exist before others use up the limit.
    if (!load_->WaitForProgress(5 * absl::GetFlag(FLAGS_clients), kLongTimeS)) Complain("no request ends");
    FaultBag clients(ClientFaults(Context(0)), seed());
    FaultBag both(WorkerFaults(Context(1), /*are_both_hit=*/true), seed());
    FaultBag one(WorkerFaults(Context(1), /*are_both_hit=*/false), seed() + 1);
    RunPhase(&clients, &both, start_ + length / 3);
    TakeLook();
    const size_t first_look = looks_.size() - 1;
    RunPhase(&clients, &one, start_ + length);
    TakeLook();
    CheckLooks(first_look);
    const MixedLoad::Counts counts = load_->counts();
    if (counts.errors > 0) Complain(absl::StrCat(counts.errors, " errors of requests, the first ones are:"));
    for (const std::string& error : load_->errors()) Complain(error);
    std::printf("\n| fault | times |\n|---|---:|\n");
    std::map<std::string, int> times = both.counts();
    for (const FaultBag* bag : {&one, &clients}) {
      for (const auto& [name, count] : bag->counts()) times[name] += count;
    }
    for (const auto& [name, count] : times) std::printf("| %s | %d |\n", name.c_str(), count);
    std::printf("\nThe slowest request took %.1f s.\n", counts.slowest_s);
    load_.reset();
    if (!is_good_) PrintLogs();
    return is_good_;
  }

 private:
  static uint64_t seed() { return absl::GetFlag(FLAGS_seed); }

  void Learn(Client* client) {
    const absl::Status status = book_.Learn(client);
    QUIRE_CHECK(status.ok()) << status;
  }

  // Returns the port at the end of a line of the manager's output.
  int PortAfter(const std::string& text) {
    const std::string line = cluster_.manager().WaitForLine(text);
    int port = 0;
    QUIRE_CHECK(absl::SimpleAtoi(line.substr(line.find_last_of(": ") + 1), &port)) << cluster_.manager().Output();
    return port;
  }

  FaultContext Context(int list) {
    return {.cluster = &cluster_,
            .load = load_.get(),
            .model = BundledModel(),
            .other = other_.path(),
            .grpc_port = PortAfter("listening on"),
            .metrics_port = PortAfter("metrics on port"),
            .max_connections = kMaxConnections,
            .random = &randoms_[list]};
  }

  // Runs faults of clients and of workers at the same time until `end`. Stops at the first fault that goes wrong.
  void RunPhase(FaultBag* clients, FaultBag* workers, absl::Time end) {
    while (is_good_ && absl::Now() < end) {
      absl::Status client_status;
      std::thread thread([&] { client_status = clients->RunNext(); });
      const absl::Status worker_status = workers->RunNext();
      thread.join();
      for (const absl::Status& status : {client_status, worker_status}) {
        if (!status.ok()) Complain(status.message());
      }
      if (!load_->WaitForProgress(5, kLongTimeS)) Complain("no request has ended for a long time");
      if (looks_.empty() || absl::Now() - last_look_ >= interval_) TakeLook();
    }
  }

  // Lets all requests end, and checks that nothing of them is left.
  void TakeLook() {
    load_->Pause();
    if (!cluster_.WaitUntilIdle(1000 * kLongTimeS)) Complain("blocks or requests are left when nothing runs");
    Look look;
    // Connections end a little later than the calls, and the manager looks every 10 s whether it keeps free memory.
    for (int i = 0; i < 300; ++i) {
      look = {absl::ToDoubleMinutes(absl::Now() - start_),
              ReadProcessState(cluster_.manager().pid()),
              {ReadProcessState(cluster_.worker(0).pid()), ReadProcessState(cluster_.worker(1).pid())}};
      const bool is_flat = !looks_.empty() && IsFlat(looks_.front().manager, look.manager) &&
                           IsFlat(looks_.front().workers[0], look.workers[0]) &&
                           IsFlat(looks_.front().workers[1], look.workers[1]);
      if (looks_.empty() ? i == 10 : is_flat) break;
      absl::SleepFor(absl::Milliseconds(100));
    }
    const MixedLoad::Counts counts = load_->counts();
    std::printf("| %.1f | %lld | %lld | %lld | %lld", look.minute, (long long)counts.whole, (long long)counts.cancelled,
                (long long)counts.expired, (long long)counts.errors);
    for (const ProcessState& state : {look.manager, look.workers[0], look.workers[1]}) {
      std::printf(" | %.1f, %d, %d", state.resident_mib, state.num_files, state.num_threads);
    }
    std::printf(" |\n");
    std::fflush(stdout);
    looks_.push_back(look);
    last_look_ = absl::Now();
    load_->Resume();
  }

  static bool IsFlat(const ProcessState& before, const ProcessState& after) {
    return after.resident_mib <= before.resident_mib + kMaxMoreMib &&
           after.num_files <= before.num_files + kMaxMoreFiles &&
           after.num_threads <= before.num_threads + kMaxMoreThreads;
  }

  // Compares the last look with the first one of the same process from `first` on.
  void CheckLooks(size_t first) {
    const auto check = [&](const std::string& name, const auto& state_of) {
      const ProcessState& after = state_of(looks_.back());
      const auto same = std::find_if(looks_.begin() + static_cast<ptrdiff_t>(first), looks_.end(),
                                     [&](const Look& look) { return state_of(look).pid == after.pid; });
      const ProcessState& before = state_of(*same);
      if (!IsFlat(before, after)) {
        Complain(absl::StrCat(name, " had ", before.resident_mib, " MiB, ", before.num_files, " files and ",
                              before.num_threads, " threads, and has ", after.resident_mib, " MiB, ", after.num_files,
                              " files and ", after.num_threads, " threads"));
      }
    };
    check("the manager", [](const Look& look) -> const ProcessState& { return look.manager; });
    check("worker 0", [](const Look& look) -> const ProcessState& { return look.workers[0]; });
    check("worker 1", [](const Look& look) -> const ProcessState& { return look.workers[1]; });
  }

  // Prints the end of the output of each process, without the lines about requests.
  void PrintLogs() {
    constexpr size_t kNumLines = 60;
    for (Process* const process : {&cluster_.manager(), &cluster_.worker(0), &cluster_.worker(1)}) {
      std::vector<std::string> lines = absl::StrSplit(process->Output(), '\n');
      std::erase_if(lines, [](const std::string& line) { return absl::StrContains(line, " request="); });
      if (lines.size() > kNumLines) lines.erase(lines.begin(), lines.end() - kNumLines);
      std::printf("\n--- the output of process %d\n%s\n", process->pid(), absl::StrJoin(lines, "\n").c_str());
    }
  }

  void Complain(absl::string_view text) {
    is_good_ = false;
    std::printf("FAILED: %s\n", std::string(text).c_str());
    std::fflush(stdout);
  }

  const OtherModel other_;
  AnswerBook book_{MixedWork()};
  Random randoms_[2];
  Cluster cluster_{{.model = BundledModel(),
                    .num_workers = 2,
                    .worker_flags = {"--num-blocks=400", "--prefault", "--drain-timeout=5m"},
                    .manager_flags = {"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-requests",
                                      "--policy=priority", "--step-timeout=5s", "--worker-grace=5m",
                                      absl::StrCat("--max-connections=", kMaxConnections)}}};
  std::unique_ptr<MixedLoad> load_;
  absl::Time start_;
  absl::Duration interval_;
  absl::Time last_look_;
  std::vector<Look> looks_;
  bool is_good_ = true;
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunChaosProgram(quire::Flags(), argc, argv, [] { return quire::Soak().Run(); });
}
