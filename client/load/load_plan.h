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

// What a load consists of. The same shape for the same model gives the same requests at the same times.
struct LoadShape {
  LengthDistribution input = {};   // Not with a trace.
  LengthDistribution output = {};  // Likewise.
  std::string trace = "";          // File of an Azure trace (CSV) or a Mooncake trace (JSON lines); empty: none.
  double length_scale = 1;         // Of the trace's lengths, prefixes included; (0, 1].
  // Requests per second on average; infinity: all at once. Unset: as the trace says, without one all at once.
  std::optional<double> rate = {};
  // Shape of the gamma distribution of the gaps between requests: 1 is a Poisson process, less is burstier.
  double burstiness = 1;
  int shared_prefix_tokens = 0;  // With which every prompt begins, before its own tokens.
  uint64_t seed = 0;
  v1::GenerateRequest request = {};  // What all requests have in common beside prompt and length.
};

// One request of a load.
struct PlannedRequest {
  double arrival_s = 0;
  int input = 1;  // Tokens, the shared prefix included.
  int output = 1;
  uint64_t index = 0;                    // What its random tokens are drawn by.
  const TracedPrompt* traced = nullptr;  // Of the plan.
};

// The requests of a load by arrival, one after the other. Not thread-safe.
class LoadPlan {
 public:
  LoadPlan(LoadPlan&&) = default;

  // INVALID_ARGUMENT when the trace cannot be read or the lengths do not fit the context.
  static absl::StatusOr<LoadPlan> Make(const LoadShape& shape, int vocab_size, int max_context_tokens);

  // False at the end of the trace; what is drawn has none.
  bool Next(PlannedRequest* request);

  // A prompt of random tokens, and so many output tokens whatever the model says.
  v1::GenerateRequest MakeRequest(const PlannedRequest& planned) const;

  // The plan of other requests of this kind, with other tokens of their own: to warm up. REQUIRES: this one outlives
  // it.
  LoadPlan WarmUp() const;

  // Requests of the trace; 0 without one.
  int64_t num_traced() const { return static_cast<int64_t>(traced_.size()); }
  // Requests that were left out of the trace, or whose lengths were cut, because of the model's context.
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
  int chunk_tokens_;  // Of a Mooncake trace, scaled.
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
