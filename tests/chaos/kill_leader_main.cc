// Kills the manager that leads, while clients resume their streams with the standby. See README.md.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/flags.h"
#include "base/mutex.h"
#include "kernels/simulated/expected_tokens.h"
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
      "Kills "
      "the manager that leads at drawn moments and starts it again as the standby. Every token is compared with the "
      "reference function of the simulated device. Exits with 1 if a token differs, a request fails, or more than 1 % "
      "of the streams have the next token later than the lease and --max-delay after the kill.",
      "--kills 20",
      {{"Run", {"kills", "clients", "lease", "max_delay", "seed"}}}};
  return *flags;
}

// Of a request: its tokens in order, and when they came.
struct Stream {
  std::vector<absl::Time> arrivals;
};

std::string Percentile(std::vector<absl::Duration> values, double percent) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  const size_t index = std::min(values.size() - 1, static_cast<size_t>(percent / 100 * values.size()));
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", absl::ToDoubleSeconds(values[index]));
  return text;
}

class LeaderKiller {
 public:
  // Returns whether nothing was wrong.
  bool Run() {
    int leader = managers_.AwaitLeader({0, 1});
    QUIRE_CHECK(leader != -1);
    std::vector<std::thread> clients;
    for (int i = 0; i < absl::GetFlag(FLAGS_clients); ++i) clients.emplace_back([this, i] { RunClient(i); });
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
      const MutexLock lock(&mutex_);
      kills_.push_back(killed_at);
    }
    absl::SleepFor(absl::Seconds(3));  // For the streams that the last kill has interrupted.
    is_stopping_ = true;
    for (std::thread& client : clients) client.join();
    return Print();
  }

 private:
  void RunClient(int number) {
    Random random(absl::GetFlag(FLAGS_seed) * 1000 + static_cast<uint32_t>(number) + 1);
    Client client({.endpoint = managers_.endpoint()});
    for (int i = 0; !is_stopping_; ++i) {
      std::vector<int32_t> prompt;
      for (int j = random.Between(5, 60); j > 0; --j) prompt.push_back(random.Between(10, 1999));
      const int num_tokens = random.Between(300, 800);
      while (!RunRequest(&client, absl::StrCat("client-", number, "-", i), prompt, num_tokens)) {
        absl::SleepFor(absl::Milliseconds(20));
      }
    }
  }

  // Returns false when the request must begin again: it had not begun, or no worker had a row of it.
  bool RunRequest(Client* client, const std::string& name, const std::vector<int32_t>& prompt, int num_tokens) {
    v1::GenerateRequest request;
    for (const int32_t token : prompt) request.mutable_token_ids()->add_ids(static_cast<uint32_t>(token));
    request.set_request_id(name);
    request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(num_tokens));
    request.mutable_sampling()->set_temperature(0);
    const std::vector<int32_t> expected = simulated::ExpectedTokens(rule_, prompt, num_tokens);
    Stream stream;
    bool is_right = true;
    const std::unique_ptr<GenerateStream> call = client->Generate(request, absl::Minutes(2));
    v1::GenerateResponse response;
    while (call->Next(&response)) {
      for (const uint32_t token : response.token_ids()) {
        const size_t position = stream.arrivals.size();
        is_right &= position < expected.size() && token == static_cast<uint32_t>(expected[position]);
        stream.arrivals.push_back(absl::Now());
      }
    }
    const absl::Status status = call->Finish();
    if ((absl::IsUnavailable(status) && stream.arrivals.empty()) || absl::IsNotFound(status)) return false;
    const MutexLock lock(&mutex_);
    ++num_requests_;
    if (!status.ok() || !is_right || stream.arrivals.size() != expected.size()) {
      ++num_failed_;
      std::printf("FAILED: %s: %s; %zu of %zu tokens%s\n", name.c_str(), status.ToString().c_str(),
                  stream.arrivals.size(), expected.size(), is_right ? "" : ", some of them are wrong");
    }
    streams_.push_back(std::move(stream));
    return true;
  }

  bool Print() {
    const MutexLock lock(&mutex_);
    std::vector<absl::Duration> gaps;
    for (const absl::Time kill : kills_) {
      for (const Stream& stream : streams_) {
        const auto next = std::upper_bound(stream.arrivals.begin(), stream.arrivals.end(), kill);
        if (next != stream.arrivals.begin() && next != stream.arrivals.end()) gaps.push_back(*next - kill);
      }
    }
    const absl::Duration limit = absl::GetFlag(FLAGS_lease) + absl::GetFlag(FLAGS_max_delay);
    const auto num_late = std::count_if(gaps.begin(), gaps.end(), [&](auto gap) { return gap > limit; });
    std::printf("%zu times the leader was killed; the standby served after p50 %s s, longest %s s\n", kills_.size(),
                Percentile(takeovers_, 50).c_str(), Percentile(takeovers_, 100).c_str());
    std::printf("%d requests, %d were wrong or failed\n", num_requests_, num_failed_);
    std::printf("from the kill to the next token: p50 %s s, p99 %s s, longest %s s, %zu streams, %d later than %s\n",
                Percentile(gaps, 50).c_str(), Percentile(gaps, 99).c_str(), Percentile(gaps, 100).c_str(), gaps.size(),
                static_cast<int>(num_late), absl::FormatDuration(limit).c_str());
    return num_failed_ == 0 && !gaps.empty() && num_late * 100 <= static_cast<int>(gaps.size());
  }

  const simulated::TokenRule rule_ = *TokenRuleOf(*ReadModelConfig(BundledModel()), /*mean_output_tokens=*/0);
  TwoManagers managers_{{.lease = absl::GetFlag(FLAGS_lease), .num_workers = 2}};
  std::atomic<bool> is_stopping_ = false;
  std::vector<absl::Duration> takeovers_;

  Mutex mutex_;
  std::vector<absl::Time> kills_ QUIRE_GUARDED_BY(mutex_);
  std::vector<Stream> streams_ QUIRE_GUARDED_BY(mutex_);
  int num_requests_ QUIRE_GUARDED_BY(mutex_) = 0;
  int num_failed_ QUIRE_GUARDED_BY(mutex_) = 0;
};

int RunLeaderKiller(int argc, const char* const* argv) {
  const auto text = ReadFlags(Flags(), {argv + 1, static_cast<size_t>(argc - 1)});
  if (!text.ok() || text->has_value()) {
    std::fprintf(text.ok() ? stdout : stderr, "%s\n",
                 text.ok() ? (*text)->c_str() : std::string(text.status().message()).c_str());
    return text.ok() ? 0 : 2;
  }
  if (EtcdPath().empty()) {
    std::fprintf(stderr, "etcd is not installed (Debian: etcd-server)\n");
    return 2;
  }
  const bool is_good = LeaderKiller().Run();
  std::printf("%s\n", is_good ? "passed" : "failed");
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunLeaderKiller(argc, argv);
}
