// SPDX-License-Identifier: Apache-2.0

// Kills the manager that leads, while clients resume their streams with the standby. See README.md.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/flags.h"
#include "base/mutex.h"
#include "tests/chaos/chaos_program.h"
#include "tests/chaos/resuming_load.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/two_managers.h"
#include "tests/random.h"
#include "worker/model/simulated_model.h"

ABSL_FLAG(int32_t, kills, 12, "How often the leader is killed.");
ABSL_FLAG(int32_t, clients, 16, "Number of clients. Each of them runs one request after the other.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(4), "Duration of the lease that the leader holds in etcd.");
ABSL_FLAG(absl::Duration, max_delay, absl::Seconds(2),
          "How long after the end of the lease 99 % of the streams must have the next token.");
ABSL_FLAG(uint32_t, seed, 1, "Draws the requests and the moments of the kills.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-kill-leader",
      "Starts etcd, two managers with a lease there, two simulated workers, and clients that resume their streams. "
      "Kills the manager that leads at drawn moments and starts it again as the standby. Every token is compared with "
      "the "
      "reference function of the simulated device. Exits with 1 if a token differs, a request fails, or more than 1 % "
      "of the streams have the next token later than the lease and --max-delay after the kill.",
      "--kills 20",
      {{"Run", {"kills", "clients", "lease", "max_delay", "seed"}}}};
  return *flags;
}

class LeaderKiller {
 public:
  // Returns whether nothing was wrong.
  bool Run() {
    int leader = managers_.AwaitLeader({0, 1});
    QUIRE_CHECK(leader != -1);
    // The requests are so long that most of them run when the leader is killed.
    ResumingLoad load({.client = {.endpoint = managers_.endpoint()},
                       .rule = *TokenRuleOf(*ReadModelConfig(BundledModel()), /*mean_output_tokens=*/0),
                       .num_clients = absl::GetFlag(FLAGS_clients),
                       .seed = absl::GetFlag(FLAGS_seed),
                       .min_tokens = 300,
                       .max_tokens = 800,
                       .on_right = [this](const std::vector<absl::Time>& arrivals, bool is_search) {
                         const MutexLock lock(&mutex_);
                         (is_search ? arrivals_of_searches_ : arrivals_).push_back(arrivals);
                       }});
    Random random(absl::GetFlag(FLAGS_seed));
    for (int i = 0; i < absl::GetFlag(FLAGS_kills); ++i) {
      absl::SleepFor(absl::Milliseconds(random.Between(1500, 4000)));
      const absl::Time killed_at = absl::Now();
      managers_.manager(leader).Signal(SIGKILL);
      managers_.manager(leader).Wait();
      const int next = 1 - leader;
      QUIRE_CHECK(managers_.AwaitLeader({next}) == next) << managers_.manager(next).Output();
      takeovers_.push_back(absl::Now() - killed_at);
      managers_.StartManager(leader);
      leader = next;
      kills_.push_back(killed_at);
    }
    load.Stop();
    for (const std::string& error : load.errors()) std::printf("FAILED: %s\n", error.c_str());
    return Print(load.counts());
  }

 private:
  bool Print(const ResumingLoad::Counts& counts) {
    const MutexLock lock(&mutex_);
    const std::vector<absl::Duration> gaps = Gaps(arrivals_);
    const std::vector<absl::Duration> gaps_of_searches = Gaps(arrivals_of_searches_);
    const absl::Duration limit = absl::GetFlag(FLAGS_lease) + absl::GetFlag(FLAGS_max_delay);
    const auto num_late = std::count_if(gaps.begin(), gaps.end(), [&](auto gap) { return gap > limit; });
    std::printf("%zu times the leader was killed; the standby served after p50 %s s, longest %s s\n", kills_.size(),
                Percentile(takeovers_, 50).c_str(), Percentile(takeovers_, 100).c_str());
    std::printf(
        "%lld requests, %lld of them with logprobs, best_of or beams; %lld were wrong or failed, %lld times one "
        "began again\n",
        static_cast<long long>(counts.right + counts.wrong), static_cast<long long>(counts.recorded),
        static_cast<long long>(counts.wrong), static_cast<long long>(counts.begun_again));
    std::printf("from the kill to the next token: p50 %s s, p99 %s s, longest %s s, %zu streams, %d later than %s\n",
                Percentile(gaps, 50).c_str(), Percentile(gaps, 99).c_str(), Percentile(gaps, 100).c_str(), gaps.size(),
                static_cast<int>(num_late), absl::FormatDuration(limit).c_str());
    std::printf(
        "the same for searches, which stream only what all beams begin with: p50 %s s, longest %s s, %zu streams\n",
        Percentile(gaps_of_searches, 50).c_str(), Percentile(gaps_of_searches, 100).c_str(), gaps_of_searches.size());
    return counts.wrong == 0 && !gaps.empty() && num_late * 100 <= static_cast<int>(gaps.size());
  }

  // The times from each kill to the next token of each stream that ran.
  std::vector<absl::Duration> Gaps(const std::vector<std::vector<absl::Time>>& streams) const {
    std::vector<absl::Duration> gaps;
    for (const absl::Time kill : kills_) {
      for (const std::vector<absl::Time>& arrivals : streams) {
        const auto next = std::upper_bound(arrivals.begin(), arrivals.end(), kill);
        if (next != arrivals.begin() && next != arrivals.end()) gaps.push_back(*next - kill);
      }
    }
    return gaps;
  }

  TwoManagers managers_{{.lease = absl::GetFlag(FLAGS_lease), .num_workers = 2}};
  std::vector<absl::Duration> takeovers_;
  std::vector<absl::Time> kills_;

  Mutex mutex_;
  std::vector<std::vector<absl::Time>> arrivals_ QUIRE_GUARDED_BY(mutex_);  // By right request that is no search.
  std::vector<std::vector<absl::Time>> arrivals_of_searches_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunChaosProgram(quire::Flags(), argc, argv, [] {
    if (!quire::EtcdPath().empty()) return quire::LeaderKiller().Run();
    std::fprintf(stderr, "etcd is not installed (Debian: etcd-server)\n");
    return false;
  });
}
