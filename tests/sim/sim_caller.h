#ifndef QUIRE_TESTS_SIM_SIM_CALLER_H_
#define QUIRE_TESTS_SIM_SIM_CALLER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "scheduler/request.h"
#include "tests/sim/shadow_model.h"

namespace quire {

// Whoever made a request: knows what it gets when it has the model to itself, and complains about the first event that
// is another one, comes twice or too late.
class SimCaller : public RequestSink {
 public:
  SimCaller(Request request, const ShadowModel& model);

  void OnStarted(int num_cached_tokens) override;
  void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) override;
  void OnToken(int sample_index, int position, ScoredToken token) override;
  void OnFinished(const Finished& finished) override;
  void OnFailed(absl::Status status) override;

  // Whether the caller may end a sample: it has got something of it and it goes on.
  bool MayEndSample(int sample_index) const;
  void EndSample(int sample_index);  // On its own account, as after a stop string.
  void End() { has_ended_ = true; }  // The same for the request.

  const Request& request() const { return request_; }
  bool has_started() const { return has_started_; }
  bool has_ended() const { return has_ended_; }
  int num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_tokens() const { return num_tokens_; }  // Emitted, all samples together.
  const absl::Status& status() const { return status_; }

  // Prompt and solo output of a sample.
  std::vector<TokenId> Transcript(int sample_index) const;
  int num_outputs() const { return static_cast<int>(solo_.samples.size()); }

 private:
  struct Sample {
    int num_tokens = 0;
    bool has_ended = false;
  };

  template <typename... Parts>
  void Complain(const Parts&... parts);

  const Request request_;
  const SoloOutput solo_;
  std::vector<Sample> samples_;
  size_t num_prompt_logprobs_ = 0;
  bool has_started_ = false;
  bool has_ended_ = false;
  int num_cached_tokens_ = 0;
  int64_t num_tokens_ = 0;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_CALLER_H_
