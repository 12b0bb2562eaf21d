// Kills the manager at drawn moments and starts it again, while clients resume their streams. See README.md.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
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
#include "tests/random.h"
#include "worker/model/simulated_model.h"

ABSL_FLAG(int32_t, seconds, 600, "How long managers are killed.");
ABSL_FLAG(int32_t, clients, 12, "Number of clients. Each of them runs one request after the other.");
ABSL_FLAG(uint32_t, seed, 1, "Draws the requests, and the moments and kinds of the kills.");
ABSL_FLAG(std::string, step, "4ms", "Time of a step of the simulated workers.");
ABSL_FLAG(absl::Duration, max_gap, absl::Seconds(3),
          "How long 99 % of the streams may be without a token after the manager is back.");

namespace quire {
namespace {

using simulated::ExpectedTokens;
using simulated::TokenRule;

constexpr absl::Duration kTimeout = absl::Minutes(2);
constexpr absl::Duration kRetryDelay = absl::Milliseconds(20);
constexpr int kMaxAttempts = 1000;

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-kill-manager",
      "Starts a manager and two simulated workers, and clients that resume their streams. Kills the manager at drawn "
      "moments, alone, together with a worker, or again while it adopts, and starts it again. Every token is compared "
      "with the reference function of the simulated device. Exits with 1 if a token differs, a request fails, or more "
      "than 1 % of the streams pause for longer than --max-gap after the manager is back.",
      "--seconds 60 --seed 7",
      {{"Run", {"seconds", "clients", "seed", "step", "max_gap"}}}};
  return *flags;
}

// A request, and the tokens of its samples.
struct Work {
  v1::GenerateRequest request;
  std::vector<std::vector<uint32_t>> expected;  // By sample.
};

Work DrawWork(const TokenRule& rule, Random* random, const std::string& name) {
  Work work;
  std::vector<int32_t> prompt;
  const int prompt_tokens = random->Between(5, 120);
  const bool is_shared = random->Between(0, 1) == 0;  // Half of the prompts begin with the same tokens.
  for (int i = 0; i < prompt_tokens; ++i) {
    prompt.push_back(is_shared && i < 40 ? 10 + i : random->Between(10, 1999));
    work.request.mutable_token_ids()->add_ids(static_cast<uint32_t>(prompt.back()));
  }
  const int max_tokens = random->Between(40, 240);
  work.request.set_request_id(name);
  work.request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  work.request.mutable_stopping()->set_ignore_eos(true);
  work.request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(max_tokens));
  const int kind = random->Between(0, 3);  // Greedy, a sample, three samples, a sample with logprobs.
  if (kind == 0) {
    work.request.mutable_sampling()->set_temperature(0);
    const std::vector<int32_t> tokens = ExpectedTokens(rule, prompt, max_tokens);
    work.expected.emplace_back(tokens.begin(), tokens.end());
    return work;
  }
  const int seed = random->Between(1, 1 << 20);
  work.request.mutable_sampling()->set_temperature(0.9f);
  work.request.mutable_sampling()->set_top_p(0.8f);
  work.request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  if (kind == 2) work.request.set_n(3);
  if (kind == 3) work.request.set_logprobs(1);
  for (int sample = 0; sample < (kind == 2 ? 3 : 1); ++sample) {
    SamplingRow row{};
    row.temperature = 0.9f;
    row.top_p = 0.8f;
    row.repetition_penalty = 1;
    row.seed = static_cast<uint64_t>(seed + sample);
    row.num_top = -1;
    row.given_token = -1;
    const std::vector<int32_t> tokens = ExpectedTokens(rule, prompt, row, max_tokens);
    work.expected.emplace_back(tokens.begin(), tokens.end());
  }
  return work;
}

// One call of Generate, which may span several connections and managers.
struct Call {
  absl::Status status;
  std::vector<absl::Time> arrivals;
  std::string error;  // What is wrong with the tokens. Empty: nothing.

  void Run(Client* client, const Work& work) {
    std::vector<size_t> received(work.expected.size());
    const std::unique_ptr<GenerateStream> stream = client->Generate(work.request, kTimeout);
    v1::GenerateResponse response;
    while (stream->Next(&response)) {
      if (response.token_ids_size() == 0) continue;
      arrivals.push_back(absl::Now());
      const std::vector<uint32_t>& expected = work.expected.at(response.index());
      for (const uint32_t token : response.token_ids()) {
        size_t& position = received[response.index()];
        if (error.empty() && (position >= expected.size() || token != expected[position])) {
          error = absl::StrCat("token ", position, " of sample ", response.index(), " is ", token);
        }
        ++position;
      }
    }
    status = stream->Finish();
    for (size_t i = 0; i < received.size() && status.ok() && error.empty(); ++i) {
      if (received[i] != work.expected[i].size()) error = absl::StrCat("sample ", i, " has ", received[i], " tokens");
    }
  }
};

struct Outage {
  absl::Time killed_at;
  absl::Time back_at;  // The manager listens again.
};

std::string Percentile(std::vector<absl::Duration> values, double percent) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  const size_t index = std::min(values.size() - 1, static_cast<size_t>(percent / 100 * values.size()));
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", absl::ToDoubleSeconds(values[index]));
  return text;
}

// A directory with the key that all managers have, and with the step times of the workers. The destructor removes it.
class Files {
 public:
  Files() {
    char path[] = "/tmp/quire-kill-manager.XXXXXX";
    QUIRE_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
    std::ofstream(key()) << std::string(40, 'k');
    std::ofstream(step_times()) << "step: " << absl::GetFlag(FLAGS_step) << "\nprefill_token: 100us\n";
  }
  ~Files() { std::filesystem::remove_all(path_); }

  std::string key() const { return path_ + "/key"; }
  std::string step_times() const { return path_ + "/step_times"; }

 private:
  std::string path_;
};

class ManagerKiller {
 public:
  // Returns whether nothing was wrong.
  bool Run() {
    const absl::Time start = absl::Now();
    std::vector<std::thread> clients;
    for (int i = 0; i < absl::GetFlag(FLAGS_clients); ++i) clients.emplace_back([this, i] { RunClient(i); });
    while (absl::Now() < start + absl::Seconds(absl::GetFlag(FLAGS_seconds))) {
      absl::SleepFor(absl::Milliseconds(random_.Between(50, 2000)));
      KillAndRestart();
    }
    is_stopping_ = true;
    for (std::thread& client : clients) client.join();
    QUIRE_CHECK(cluster_.WaitUntilReady());
    const bool is_idle = cluster_.WaitUntilIdle();
    if (!is_idle) std::printf("FAILED: blocks or requests are left\n");
    ReadMetrics();
    Print(absl::Now() - start);
    const MutexLock lock(&mutex_);
    return is_idle && !is_late_ && num_failed_ == 0 && num_streams_ > 0 && num_restored_ > 0;
  }

 private:
  enum class Kind { kAlone, kWithWorker, kTwice };
  static constexpr int kNumKinds = 3;

  void RunClient(int number) {
    Random random(absl::GetFlag(FLAGS_seed) * 1000 + static_cast<uint32_t>(number) + 1);
    Client client(cluster_.client_options());
    for (int i = 0; !is_stopping_; ++i) {
      const Work work = DrawWork(rule_, &random, absl::StrCat("client-", number, "-", i));
      for (int attempt = 1;; ++attempt) {
        Call call;
        call.Run(&client, work);
        Count(work, call, attempt);
        if (call.status.ok() || !MayBeginAgain(call.status) || attempt == kMaxAttempts) break;
        absl::SleepFor(kRetryDelay);
      }
    }
  }

  // The request was lost because no worker had it yet, or because its worker was killed as well; or there was nobody
  // who could start it.
  static bool MayBeginAgain(const absl::Status& status) {
    return absl::IsNotFound(status) || absl::IsUnavailable(status);
  }

  void Count(const Work& work, const Call& call, int attempt) {
    const MutexLock lock(&mutex_);
    const bool is_lost = !call.status.ok() && MayBeginAgain(call.status) && attempt < kMaxAttempts;
    if (is_lost && call.error.empty()) {
      num_begun_again_ += absl::IsNotFound(call.status) || !call.arrivals.empty();
      return;
    }
    ++num_requests_;
    if (!call.status.ok() || !call.error.empty()) {
      ++num_failed_;
      std::printf("FAILED: %s: %s; %s\n", work.request.request_id().c_str(), call.status.ToString().c_str(),
                  call.error.c_str());
      return;
    }
    bool has_outage = false;
    for (size_t i = 0; i < outages_.size(); ++i) {
      const Outage& outage = outages_[i];
      const auto next = std::upper_bound(call.arrivals.begin(), call.arrivals.end(), outage.back_at);
      if (call.arrivals.front() > outage.killed_at || next == call.arrivals.end()) continue;
      has_outage = true;
      // When no token came before the next outage, the gap is one of that outage.
      if (i + 1 == outages_.size() || *next < outages_[i + 1].killed_at) gaps_.push_back(*next - outage.back_at);
    }
    num_streams_ += has_outage;
  }

  void KillAndRestart() {
    const auto kind = static_cast<Kind>(std::max(0, random_.Between(-2, kNumKinds - 1)));
    const int worker = random_.Between(0, 1);
    ReadMetrics();
    Outage outage{.killed_at = absl::Now(), .back_at = {}};
    cluster_.manager().Signal(SIGKILL);
    if (kind == Kind::kWithWorker) cluster_.worker(worker).Signal(SIGKILL);
    cluster_.manager().Wait();
    cluster_.RestartManager();
    if (kind == Kind::kTwice) {
      absl::SleepFor(absl::Microseconds(random_.Between(0, 20'000)));
      cluster_.manager().Signal(SIGKILL);
      cluster_.manager().Wait();
      cluster_.RestartManager();
    }
    outage.back_at = absl::Now();
    if (kind == Kind::kWithWorker) {
      cluster_.worker(worker).Wait();
      cluster_.RestartWorker(worker);
      QUIRE_CHECK(cluster_.WaitUntilReady());
    }
    ++num_kills_[static_cast<int>(kind)];
    const MutexLock lock(&mutex_);
    outages_.push_back(outage);
  }

  // Adds up what this manager has counted. The counts of one that is killed while it adopts are not known.
  void ReadMetrics() {
    num_restored_ += cluster_.ReadMetric("quire_restored_requests_total");
    num_recomputed_ += cluster_.ReadMetric("quire_recomputed_tokens_total");
  }

  void Print(absl::Duration duration) {
    const MutexLock lock(&mutex_);
    std::printf("%d times the manager was killed alone, %d times with a worker, %d times twice in a row; %.0f s\n",
                num_kills_[0], num_kills_[1], num_kills_[2], absl::ToDoubleSeconds(duration));
    std::printf("%d requests, %d of them were running when the manager was killed; %d were wrong or failed\n",
                num_requests_, num_streams_, num_failed_);
    std::printf(
        "%.0f times a request was taken over from a worker, with %.0f tokens computed again; %d times one began "
        "again\n",
        num_restored_, num_recomputed_, num_begun_again_);
    std::printf("time without a token after the manager was back: p50 %s s, p99 %s s, longest %s s, %zu gaps\n",
                Percentile(gaps_, 50).c_str(), Percentile(gaps_, 99).c_str(), Percentile(gaps_, 100).c_str(),
                gaps_.size());
    const absl::Duration max_gap = absl::GetFlag(FLAGS_max_gap);
    const auto num_late = std::count_if(gaps_.begin(), gaps_.end(), [&](auto gap) { return gap > max_gap; });
    if (num_late * 100 <= static_cast<int>(gaps_.size())) return;
    std::printf("FAILED: %d gaps are longer than %s\n", static_cast<int>(num_late),
                absl::FormatDuration(max_gap).c_str());
    is_late_ = true;
  }

  const Files files_;
  const TokenRule rule_ = *TokenRuleOf(*ReadModelConfig(BundledModel()), /*mean_output_tokens=*/0);
  Random random_{absl::GetFlag(FLAGS_seed)};
  Cluster cluster_{
      {.model = BundledModel(),
       .num_workers = 2,
       .worker_flags = {"--device=simulated", "--num-blocks=1000", "--simulated-step-times=" + files_.step_times()},
       .manager_flags = {"--resume-key-file=" + files_.key()},
       .metrics_listen = "127.0.0.1:0"}};
  std::atomic<bool> is_stopping_ = false;
  int num_kills_[kNumKinds] = {};
  double num_restored_ = 0;
  double num_recomputed_ = 0;
  bool is_late_ = false;

  Mutex mutex_;
  std::vector<Outage> outages_ QUIRE_GUARDED_BY(mutex_);
  std::vector<absl::Duration> gaps_ QUIRE_GUARDED_BY(mutex_);
  int num_requests_ QUIRE_GUARDED_BY(mutex_) = 0;
  int num_streams_ QUIRE_GUARDED_BY(mutex_) = 0;
  int num_failed_ QUIRE_GUARDED_BY(mutex_) = 0;
  int num_begun_again_ QUIRE_GUARDED_BY(mutex_) = 0;
};

int RunManagerKiller(int argc, const char* const* argv) {
  const auto text = ReadFlags(Flags(), {argv + 1, static_cast<size_t>(argc - 1)});
  if (!text.ok() || text->has_value()) {
    std::fprintf(text.ok() ? stdout : stderr, "%s\n",
                 text.ok() ? (*text)->c_str() : std::string(text.status().message()).c_str());
    return text.ok() ? 0 : 2;
  }
  const bool is_good = ManagerKiller().Run();
  std::printf("%s\n", is_good ? "passed" : "failed");
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunManagerKiller(argc, argv);
}
