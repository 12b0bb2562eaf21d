// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_LOAD_PLAN_H_
#define QUIRE_CLIENT_LOAD_LOAD_PLAN_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/length_distribution.h"
#include "client/load/prompt_trace.h"
#include "client/load/random.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Describes a load. The same shape for the same model gives the same requests at the same times.
struct LoadShape {
  LengthDistribution input = {};   // Prompt lengths; unused with a trace.
  LengthDistribution output = {};  // Output lengths; unused with a trace.
  std::string trace = "";          // File of an Azure trace (CSV) or a Mooncake trace (JSON lines); empty: none.
  double length_scale = 1;         // Factor on the trace's lengths, including prefixes; (0, 1].
  // Requests per second on average; infinity means all at once. If unset, the trace decides, or all are sent at once.
  std::optional<double> rate = {};
  // Shape of the gamma distribution of the gaps between requests: 1 is a Poisson process, less is burstier.
  double burstiness = 1;
  int shared_prefix_tokens = 0;  // Every prompt begins with these same tokens.
  uint64_t seed = 0;
  v1::GenerateRequest request = {};  // Everything else that all requests have in common.
};

// A request of a load.
struct PlannedRequest {
  double arrival_s = 0;
  int input = 1;                         // Prompt tokens, including the shared prefix.
  int output = 1;                        // Output tokens.
  uint64_t index = 0;                    // Selects the request's random tokens.
  const TracedPrompt* traced = nullptr;  // Its prompt in the trace, owned by the plan; null without one.
};

// Yields the requests of a load in the order of their arrival. Not thread-safe.
class LoadPlan {
 public:
  LoadPlan(LoadPlan&&) = default;

  // INVALID_ARGUMENT when the trace cannot be read or the lengths do not fit the context.
  static absl::StatusOr<LoadPlan> Make(const LoadShape& shape, int vocab_size, int max_context_tokens);

  // Returns false at the end of the trace. A drawn load has no end.
  bool Next(PlannedRequest* request);

  // The request has a prompt of random tokens and ignores the model's end token, so its output has the planned length.
  v1::GenerateRequest MakeRequest(const PlannedRequest& planned) const;

  // A plan of similar requests with different tokens, to warm up the manager. REQUIRES: this plan outlives it.
  LoadPlan WarmUp() const;

  // The number of requests in the trace; 0 without a trace.
  int64_t num_traced() const { return static_cast<int64_t>(traced_.size()); }
  // Requests of the trace that do not fit the model's context are left out. Drawn ones are cut to it.
  int64_t num_left_out() const { return num_left_out_; }
  int64_t num_cut() const { return num_cut_; }

 private:
  LoadPlan(const LoadShape& shape, int vocab_size, int max_context_tokens);

  absl::Status CheckLengths() const;
  absl::Status ReadTrace();
  void DrawLengths(PlannedRequest* request);

  LoadShape shape_;
  uint64_t vocab_size_;
  int max_context_tokens_;
  int chunk_tokens_;  // Chunk size of a Mooncake trace, scaled by length_scale.
  std::vector<TracedPrompt> traced_prompts_;
  std::vector<PlannedRequest> traced_;
  BenchRandom lengths_;
  BenchRandom arrivals_;
  double next_arrival_s_ = 0;
  uint64_t next_index_ = 0;
  uint64_t first_index_ = 0;
  int64_t num_left_out_ = 0;
  int64_t num_cut_ = 0;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LOAD_PLAN_H_
