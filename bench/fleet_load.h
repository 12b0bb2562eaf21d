// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_FLEET_LOAD_H_
#define QUIRE_BENCH_FLEET_LOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "client/library/client.h"
#include "kernels/simulated/token_rule.h"

namespace quire {

// Many greedy requests to simulated workers, over a few calls of GenerateBatch. Every token is compared with the one
// that the rule expects, so that each wrong, lost or doubled token is counted.
class FleetLoad {
 public:
  // Counts since the beginning.
  struct Counts {
    int64_t tokens = 0;
    int64_t wrong_tokens = 0;
    int64_t running = 0;  // Requests that have had a token and have not ended.
    int64_t ended = 0;    // Requests that have had all their tokens.
    int64_t failed = 0;   // Requests that have ended with an error.
  };

  FleetLoad(const std::string& endpoint, const simulated::TokenRule* rule, int num_streams);
  // Ends all requests.
  ~FleetLoad();

  // Starts `num_requests` requests with random prompts.
  absl::Status Start(int num_requests, int prompt_tokens, int max_tokens);

  Counts Count() const;
  // The status of the first request or call that failed.
  absl::Status first_error() const QUIRE_EXCLUDES(mutex_);

 private:
  // This is known of a request. The reader of its stream owns it after the request has started.
  struct Request {
    uint64_t sum;  // Sum of its tokens so far.
    int position;  // Position of its next token.
    bool is_running = false;
  };
  struct Stream {
    std::unique_ptr<GenerateBatchStream> call;
    std::vector<Request> requests;  // By tag - 1.
    std::thread reader;
  };

  void Read(Stream* stream);
  void TakeEntry(Stream* stream, const v1::GenerateBatchEntry& entry);
  void SetError(const absl::Status& error) QUIRE_EXCLUDES(mutex_);

  const simulated::TokenRule& rule_;
  Client client_;
  std::vector<Stream> streams_;

  std::atomic<int64_t> num_tokens_{0};
  std::atomic<int64_t> num_wrong_{0};
  std::atomic<int64_t> num_running_{0};
  std::atomic<int64_t> num_ended_{0};
  std::atomic<int64_t> num_failed_{0};
  std::atomic<bool> is_ending_{false};
  mutable Mutex mutex_;
  absl::Status first_error_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_BENCH_FLEET_LOAD_H_
