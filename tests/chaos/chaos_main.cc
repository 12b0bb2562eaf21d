// SPDX-License-Identifier: Apache-2.0

// Runs a manager and simulated workers behind proxies that fail, while processes fail as well. See README.md.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/flags.h"
#include "tests/chaos/chaos_faults.h"
#include "tests/chaos/chaos_program.h"
#include "tests/chaos/event_log.h"
#include "tests/chaos/fault_bag.h"
#include "tests/chaos/fault_proxy.h"
#include "tests/chaos/resuming_load.h"
#include "tests/chaos/simulation_files.h"
#include "tests/e2e/cluster.h"
#include "tests/random.h"
#include "worker/model/simulated_model.h"

ABSL_FLAG(double, minutes, 10, "How long faults happen.");
ABSL_FLAG(uint32_t, seed, 1, "Draws the requests, and the kinds and the moments of the faults.");
ABSL_FLAG(int32_t, clients, 12, "Number of clients. Each of them runs one request after the other.");
ABSL_FLAG(int32_t, workers, 3, "Number of workers.");
ABSL_FLAG(bool, print_events, false, "Prints the events also when nothing was wrong.");
ABSL_FLAG(std::string, step, "4ms", "Time of a step of the simulated workers.");

namespace quire {
namespace {

constexpr int kIdleMs = 120'000;  // Within this time, nothing is left of any request.

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-chaos",
      "Starts a manager and simulated workers behind proxies, and clients that resume their streams. Kills, stops, "
      "continues and drains the processes, and cuts, delays, holds and half-opens their connections, at drawn moments. "
      "Every token is compared with the reference function of the simulated device. Exits with 1 if a token differs, a "
      "request fails that should not, a process ends by itself, or blocks are left; then it prints all events.",
      "--minutes 10 --seed 7",
      {{"Run", {"minutes", "seed", "clients", "workers", "step", "print_events"}}}};
  return *flags;
}

class Chaos {
 public:
  Chaos() {
    for (int i = 0; i < num_workers_; ++i) proxies_.push_back(std::make_unique<FaultProxy>());
    cluster_ = std::make_unique<Cluster>(MakeOptions());
    for (int i = 0; i < num_workers_; ++i) {
      proxies_[static_cast<size_t>(i)]->SetTarget(cluster_->worker_listen_address(i));
    }
    client_proxy_.SetTarget(cluster_->endpoint());
    QUIRE_CHECK(cluster_->WaitUntilReady());
  }

  // Returns whether nothing was wrong. Called once.
  bool Run() {
    const absl::Time start = absl::Now();
    const uint32_t seed = absl::GetFlag(FLAGS_seed);
    ClientOptions client_options;
    client_options.endpoint = client_proxy_.endpoint();
    ResumingLoad load({.client = client_options,
                       .rule = *TokenRuleOf(*ReadModelConfig(BundledModel()), /*mean_output_tokens=*/0),
                       .num_clients = absl::GetFlag(FLAGS_clients),
                       .seed = seed,
                       .may_be_lost = [this](absl::Time started) { return outages_.HappenedSince(started); }});
    Random process_random(seed);
    Random link_random(seed + 1);
    FaultBag process_faults(ProcessFaults(Context(&load, &process_random)), seed);
    FaultBag link_faults(LinkFaults(Context(&load, &link_random)), seed + 1);
    const absl::Time end = start + absl::Minutes(absl::GetFlag(FLAGS_minutes));
    std::thread links([&] { RunFaults(&link_faults, &link_random, 600, end, load); });
    RunFaults(&process_faults, &process_random, 400, end, load);
    links.join();
    events_.Add("the faults are over");
    load.Stop();
    for (const std::string& error : load.errors()) Complain(error);
    if (is_good_) CheckRest();
    Print(absl::Now() - start, load.counts(), {&process_faults, &link_faults});
    return is_good_;
  }

 private:
  ClusterOptions MakeOptions() const {
    std::vector<std::string> addresses;
    for (const auto& proxy : proxies_) addresses.push_back(proxy->endpoint());
    // The pools are small, so that requests are preempted and swapped.
    return {.model = BundledModel(),
            .num_workers = num_workers_,
            .worker_flags = {"--device=simulated", "--num-blocks=160", "--swap-bytes=32KiB", "--drain-timeout=10s",
                             "--simulated-step-times=" + files_.step_times()},
            .manager_flags = {"--resume-key-file=" + files_.key(), "--step-timeout=5s", "--worker-grace=40s",
                              "--drain-timeout=200ms"},
            .waits_for_workers = false,
            .worker_addresses = addresses};
  }

  ChaosContext Context(ResumingLoad* load, Random* random) {
    return {.cluster = cluster_.get(),
            .num_workers = num_workers_,
            .load = load,
            .outages = &outages_,
            .events = &events_,
            .worker_proxies = &proxies_,
            .client_proxy = &client_proxy_,
            .random = random};
  }

  // Runs faults until `end`, with pauses up to `max_pause_ms`. Stops when something is wrong.
  void RunFaults(FaultBag* faults, Random* random, int max_pause_ms, absl::Time end, const ResumingLoad& load) {
    while (is_good_ && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(random->Between(0, max_pause_ms)));
      const absl::Status status = faults->RunNext();
      if (!status.ok()) Complain(status.message());
      if (load.counts().wrong > 0) is_good_ = false;
    }
  }

  // Nothing runs any more.
  void CheckRest() {
    if (!cluster_->WaitUntilReady()) return Complain("a worker does not come back");
    if (!cluster_->WaitUntilIdle(kIdleMs)) {
      return Complain("blocks or requests are left");
    }
    v1::AuditRequest request;
    request.set_max_wait_ms(0);  // No step compares the rows, because nothing runs.
    const absl::StatusOr<v1::AuditResponse> audit = cluster_->client().Audit(request);
    if (!audit.ok()) return Complain(audit.status().ToString());
    for (const v1::WorkerAudit& worker : audit->workers()) {
      if (worker.num_differences() > 0 || !worker.contradiction().empty()) Complain(worker.ShortDebugString());
    }
  }

  void Print(absl::Duration duration, const ResumingLoad::Counts& counts, const std::vector<const FaultBag*>& bags) {
    if (!is_good_ || absl::GetFlag(FLAGS_print_events)) {
      std::printf("\n--- the events\n");
      events_.Print();
    }
    if (!is_good_) {
      PrintOutput("manager", cluster_->manager());
      for (int i = 0; i < num_workers_; ++i) PrintOutput(absl::StrCat("worker ", i), cluster_->worker(i));
      std::printf("\n");
    }
    std::printf("| fault | times |\n|---|---:|\n");
    for (const FaultBag* bag : bags) {
      for (const auto& [name, count] : bag->counts()) std::printf("| %s | %d |\n", name.c_str(), count);
    }
    std::printf(
        "\nseed %u, %.0f s: %lld requests had the right tokens, %lld were wrong or failed, %lld times one began again "
        "after its manager was lost; the longest time without a token was %.1f s (%s)\n",
        absl::GetFlag(FLAGS_seed), absl::ToDoubleSeconds(duration), static_cast<long long>(counts.right),
        static_cast<long long>(counts.wrong), static_cast<long long>(counts.begun_again),
        absl::ToDoubleSeconds(counts.longest_gap), counts.longest_gap_at.c_str());
    if (counts.right == 0) is_good_ = false;
  }

  static void PrintOutput(const std::string& name, const Process& process) {
    constexpr size_t kNumLines = 80;
    std::vector<std::string> lines = absl::StrSplit(process.Output(), '\n');
    if (lines.size() > kNumLines) lines.erase(lines.begin(), lines.end() - kNumLines);
    std::printf("\n--- the end of the output of %s\n%s\n", name.c_str(), absl::StrJoin(lines, "\n").c_str());
  }

  void Complain(absl::string_view text) {
    is_good_ = false;
    events_.Add(absl::StrCat("FAILED: ", text));
    std::printf("FAILED: %s\n", std::string(text).c_str());
    std::fflush(stdout);
  }

  const int num_workers_ = absl::GetFlag(FLAGS_workers);
  const SimulationFiles files_{absl::GetFlag(FLAGS_step)};
  std::vector<std::unique_ptr<FaultProxy>> proxies_;  // By worker.
  FaultProxy client_proxy_;
  std::unique_ptr<Cluster> cluster_;
  ManagerOutages outages_;
  EventLog events_;
  std::atomic<bool> is_good_ = true;
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunChaosProgram(quire::Flags(), argc, argv, [] { return quire::Chaos().Run(); });
}
