#ifndef QUIRE_BENCH_LOAD_GENERATOR_H_
#define QUIRE_BENCH_LOAD_GENERATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bench/request_lengths.h"
#include "bench/samples.h"
#include "client/client.h"

namespace quire {

struct LoadOptions {
  std::vector<RequestLengths> requests;  // By arrival.
  uint32_t vocab_size = 0;               // Prompts are drawn from it.
  int max_concurrency = 0;               // Requests that arrive while so many are open wait here; 0: no limit.
  int shared_tokens = 0;                 // The first ones of a prompt are the same in all, as far as it goes.
  uint64_t seed = 1;                     // Of the prompts' tokens.
  absl::Duration timeout = absl::Minutes(10);
  bool multiplex = false;  // All requests over one GenerateBatch; else a Generate and a thread for each.
};

struct LoadReport {
  int64_t num_completed = 0;
  int64_t num_failed = 0;
  absl::Status first_error;
  int64_t input_tokens = 0;   // Of the completed requests.
  int64_t output_tokens = 0;  // Likewise.
  double duration_s = 0;      // From the first arrival to the end of the last request.
  // Of the completed requests, in ms, as `vllm bench serve` defines them.
  Samples ttft_ms;  // From sending to the first token.
  Samples tpot_ms;  // Per request: from the first to the last token, by the number of tokens after the first.
  Samples itl_ms;   // From one response with tokens to the next.
  Samples e2el_ms;  // From sending to the end.
};

// Sends every request at its arrival time, whether or not earlier ones are done (open loop), greedy and to the full
// length of its output. Times are on this machine's steady clock.
LoadReport GenerateLoad(Client* client, const LoadOptions& options);

// The report as one JSON object, with the names of `vllm bench serve`.
std::string ToJson(const LoadReport& report);

// The same for people.
std::string ToText(const LoadReport& report);

}  // namespace quire

#endif  // QUIRE_BENCH_LOAD_GENERATOR_H_
