// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/resuming_load.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "kernels/simulated/expected_tokens.h"
#include "tests/chaos/recorded_stream.h"

namespace quire {
namespace {

using simulated::ExpectedTokens;

constexpr absl::Duration kRequestTimeout = absl::Minutes(2);
constexpr absl::Duration kRetryDelay = absl::Milliseconds(20);
constexpr int kMaxAttempts = 10'000;
constexpr size_t kMaxKeptErrors = 20;

std::string TimeOfDay(absl::Time time) {
  return absl::FormatTime("%H:%M:%E3S", time, absl::UTCTimeZone());
}

// Nobody knows the request, or there was nobody who could start it. A manager that stops leaves a request that has
// begun to the next one, so the end of a drain loses none.
bool IsLost(const absl::Status& status, bool has_begun) {
  if (has_begun && absl::StrContains(status.message(), "the manager is shutting down")) return false;
  return absl::IsNotFound(status) || absl::IsUnavailable(status);
}

// Says what is wrong with a token that is not the one expected at `position`, and what may be the cause: a response
// that does not begin where the one before has ended, or a token of another position.
std::string Difference(const v1::GenerateResponse& response, size_t position, uint32_t token,
                       const std::vector<uint32_t>& expected) {
  std::string text = absl::StrCat("token ", position, " of sample ", response.index(), " is ", token);
  if (position < expected.size()) absl::StrAppend(&text, " instead of ", expected[position]);
  absl::StrAppend(&text, ", in a response of ", response.token_ids_size(), " tokens from position ",
                  response.position(), "; it is expected at the positions");
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == token) absl::StrAppend(&text, " ", i);
  }
  return absl::StrCat(text, " of ", expected.size());
}

}  // namespace

// A request, and the tokens of its samples.
struct ResumingLoad::Work {
  v1::GenerateRequest request;
  std::vector<std::vector<uint32_t>> expected;  // By sample.
  std::string recorded;                         // Of a recorded kind: RecordedStream::Content in place of `expected`.
};

ResumingLoad::Work ResumingLoad::DrawRecordedKind(int number, Random* random) const {
  Work work;
  for (int i = random->Between(20, 120); i > 0; --i)
    work.request.mutable_token_ids()->add_ids(random->Between(10, 1999));
  work.request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  work.request.mutable_stopping()->set_ignore_eos(true);
  work.request.mutable_stopping()->set_max_tokens(
      static_cast<uint32_t>(random->Between(options_.min_tokens, options_.max_tokens)));
  const int kind = number % 4;
  if (kind == 3) {
    work.request.mutable_beam()->set_width(4);
    work.request.mutable_beam()->set_num_return_sequences(2);
    return work;
  }
  work.request.mutable_sampling()->set_temperature(0.9f);
  work.request.mutable_sampling()->set_top_p(0.8f);
  work.request.mutable_sampling()->set_seed(static_cast<uint64_t>(random->Between(1, 1 << 20)));
  work.request.set_n(kind == 1 ? 4 : 1);
  if (kind == 2) work.request.set_best_of(3);
  if (kind != 2) work.request.set_logprobs(kind == 0 ? 3 : 0);
  if (kind == 0) work.request.set_prompt_logprobs(1);
  return work;
}

ResumingLoad::Work ResumingLoad::DrawWork(Random* random, const std::string& name) const {
  const simulated::TokenRule& rule = options_.rule;
  if (!recorded_.empty() && random->Between(0, 2) == 0) {
    Work work = recorded_[static_cast<size_t>(random->Below(static_cast<int>(recorded_.size())))];
    work.request.set_request_id(name);
    return work;
  }
  Work work;
  std::vector<int32_t> prompt;
  const int prompt_tokens = random->Between(5, 120);
  const bool is_shared = random->Between(0, 1) == 0;
  for (int i = 0; i < prompt_tokens; ++i) {
    prompt.push_back(is_shared && i < 40 ? 10 + i : random->Between(10, 1999));
    work.request.mutable_token_ids()->add_ids(static_cast<uint32_t>(prompt.back()));
  }
  const int max_tokens = random->Between(options_.min_tokens, options_.max_tokens);
  work.request.set_request_id(name);
  work.request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  work.request.mutable_stopping()->set_ignore_eos(true);
  work.request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(max_tokens));
  const int kind = random->Between(0, 2);  // Greedy, a sample, three samples.
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
struct ResumingLoad::Call {
  absl::Time started = absl::Now();
  absl::Time ended;
  absl::Status status;
  std::vector<absl::Time> arrivals;
  std::string error;  // What is wrong with the tokens. Empty: nothing.

  void Run(Client* client, const Work& work) {
    if (work.recorded.empty()) return RunExpected(client, work);
    RecordedStream stream;
    stream.Run(client, work.request, [](int /*num_tokens*/) {});
    arrivals = stream.arrivals();
    status = stream.status();
    ended = absl::Now();
    if (status.ok() && stream.Content() != work.recorded) error = FirstDifference(work.recorded, stream.Content());
  }

  void RunExpected(Client* client, const Work& work) {
    std::vector<size_t> received(work.expected.size());
    const std::unique_ptr<GenerateStream> stream = client->Generate(work.request, kRequestTimeout);
    v1::GenerateResponse response;
    while (stream->Next(&response)) {
      if (response.token_ids_size() == 0) continue;
      arrivals.push_back(absl::Now());
      const std::vector<uint32_t>& expected = work.expected.at(response.index());
      for (const uint32_t token : response.token_ids()) {
        size_t& position = received[response.index()];
        if (error.empty() && (position >= expected.size() || token != expected[position])) {
          error = Difference(response, position, token, expected);
        }
        ++position;
      }
    }
    status = stream->Finish();
    ended = absl::Now();
    for (size_t i = 0; i < received.size() && status.ok() && error.empty(); ++i) {
      if (received[i] != work.expected[i].size()) error = absl::StrCat("sample ", i, " has ", received[i], " tokens");
    }
  }
};

ResumingLoad::ResumingLoad(const Options& options) : options_(options), num_ended_(options.num_clients) {
  Record();
  for (int i = 0; i < options_.num_clients; ++i) clients_.emplace_back([this, i] { RunClient(i); });
}

void ResumingLoad::Record() {
  Random random(options_.seed * 1000);
  Client client(options_.client);
  for (int number = 0; number < options_.num_recorded; ++number) recorded_.push_back(DrawRecordedKind(number, &random));
  std::vector<std::thread> threads;
  for (Work& work : recorded_) {
    threads.emplace_back([&client, &work] {
      RecordedStream stream;
      stream.Run(&client, work.request, [](int /*num_tokens*/) {});
      QUIRE_CHECK(stream.status().ok()) << stream.status();
      work.recorded = stream.Content();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

ResumingLoad::~ResumingLoad() {
  Stop();
}

void ResumingLoad::Stop() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  for (std::thread& client : clients_) client.join();
  clients_.clear();
}

void ResumingLoad::RunClient(int number) {
  Random random(options_.seed * 1000 + static_cast<uint64_t>(number) + 1);
  Client client(options_.client);
  for (int i = 0;; ++i) {
    {
      const MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    const Work work = DrawWork(&random, absl::StrCat("client-", number, "-", i));
    for (int attempt = 1;; ++attempt) {
      Call call;
      call.Run(&client, work);
      if (!Count(work, call, attempt)) break;
      absl::SleepFor(kRetryDelay);
    }
    const MutexLock lock(&mutex_);
    ++num_ended_[static_cast<size_t>(number)];
    changed_.NotifyAll();
  }
}

bool ResumingLoad::Count(const Work& work, const Call& call, int attempt) {
  const bool may_be_lost = options_.may_be_lost == nullptr || options_.may_be_lost(call.started);
  // Without a connection, the request has not begun, and its caller hears of it at once.
  const bool has_not_begun = call.arrivals.empty() && IsConnectionError(call.status);
  if (call.error.empty() && attempt < kMaxAttempts && IsLost(call.status, !call.arrivals.empty()) &&
      (may_be_lost || has_not_begun)) {
    const MutexLock lock(&mutex_);
    counts_.begun_again += absl::IsNotFound(call.status) || !call.arrivals.empty();
    return true;
  }
  const bool is_right = call.status.ok() && call.error.empty();
  if (is_right && options_.on_right != nullptr) options_.on_right(call.arrivals, work.request.has_beam());
  const MutexLock lock(&mutex_);
  if (is_right) {
    ++counts_.right;
    counts_.recorded += !work.recorded.empty();
    absl::Time last = call.started;
    for (const absl::Time arrival : call.arrivals) {
      if (arrival - last > counts_.longest_gap) {
        counts_.longest_gap = arrival - last;
        counts_.longest_gap_at =
            absl::StrCat(work.request.request_id(), ", from ", TimeOfDay(last), " to ", TimeOfDay(arrival));
      }
      last = arrival;
    }
    return false;
  }
  ++counts_.wrong;
  if (errors_.size() < kMaxKeptErrors) {
    errors_.push_back(absl::StrCat(work.request.request_id(), ", from ", TimeOfDay(call.started), " to ",
                                   TimeOfDay(call.ended), ": ", call.status.ToString(), " ", call.error));
  }
  return false;
}

bool ResumingLoad::HaveAllEnded(const std::vector<int64_t>& before) const {
  for (size_t i = 0; i < before.size(); ++i) {
    if (num_ended_[i] == before[i]) return false;
  }
  return true;
}

bool ResumingLoad::WaitForRunning(absl::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(timeout);
  const MutexLock lock(&mutex_);
  const std::vector<int64_t> before = num_ended_;
  while (!HaveAllEnded(before)) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return HaveAllEnded(before);
  }
  return true;
}

ResumingLoad::Counts ResumingLoad::counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

std::vector<std::string> ResumingLoad::errors() const {
  const MutexLock lock(&mutex_);
  return errors_;
}

}  // namespace quire
