// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_RESUMING_LOAD_H_
#define QUIRE_TESTS_CHAOS_RESUMING_LOAD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/library/client.h"
#include "kernels/simulated/token_rule.h"
#include "tests/random.h"

namespace quire {

// Clients of simulated workers, each with a thread and one request after the other: greedy ones, seeded ones, and three
// samples. Half of the prompts begin with the same tokens. The clients resume their streams. Every token is compared
// with the reference function of the simulated device. A third of the requests are of the recorded kinds, for which
// there is no such function: logprobs of output and prompt, four samples with logprobs, best_of, and searches with four
// beams. The first calls record what they give; all that later calls receive, with logprobs and scores, must be the
// same bytes. A request that nobody knows any more restarts. Thread-safe.
class ResumingLoad {
 public:
  struct Options {
    ClientOptions client;
    simulated::TokenRule rule;  // Of the workers.
    int num_clients = 1;
    uint64_t seed = 1;
    int min_tokens = 40;  // Of the output of a request.
    int max_tokens = 240;
    int num_recorded = 12;  // Requests of the recorded kinds.
    // Whether a request that was started at this time may be lost, so that it may restart. Null: each one may be.
    std::function<bool(absl::Time started)> may_be_lost = nullptr;
    // Is called for each request that had the right tokens, with the times at which they arrived. A search streams only
    // what all its beams begin with, so it pauses by itself. May be null.
    std::function<void(const std::vector<absl::Time>& arrivals, bool is_search)> on_right = nullptr;
  };
  struct Counts {
    int64_t right = 0;           // Requests that were read to their end and had the right tokens.
    int64_t recorded = 0;        // Right requests of the recorded kinds.
    int64_t wrong = 0;           // Requests with other tokens, and those that failed.
    int64_t begun_again = 0;     // Times that a request began again.
    absl::Duration longest_gap;  // The longest time that a right request was without a token.
    std::string longest_gap_at;  // Where that was.
  };

  // Waits until the recorded kinds are recorded, while nothing else runs.
  explicit ResumingLoad(const Options& options);
  ~ResumingLoad();  // Stops.

  // Waits until the requests that run have ended.
  void Stop();
  // Waits until all requests that run now have ended. Returns false when that takes longer than `timeout`. REQUIRES:
  // Stop was not called.
  bool WaitForRunning(absl::Duration timeout);

  Counts counts() const;
  std::vector<std::string> errors() const;  // The first ones: what is wrong with a request, and when it was.

 private:
  struct Work;
  struct Call;

  Work DrawWork(Random* random, const std::string& name) const;
  // A request of a recorded kind, without its answer.
  Work DrawRecordedKind(int number, Random* random) const;
  void Record();
  void RunClient(int number);
  // Whether every client has ended a request since these numbers were taken.
  bool HaveAllEnded(const std::vector<int64_t>& before) const QUIRE_REQUIRES(mutex_);
  // Returns whether the request must restart.
  bool Count(const Work& work, const Call& call, int attempt);

  const Options options_;
  std::vector<Work> recorded_;  // Does not change while clients run.
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  Counts counts_ QUIRE_GUARDED_BY(mutex_);
  std::vector<int64_t> num_ended_ QUIRE_GUARDED_BY(mutex_);  // By client.
  std::vector<std::string> errors_ QUIRE_GUARDED_BY(mutex_);
  std::vector<std::thread> clients_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_RESUMING_LOAD_H_
