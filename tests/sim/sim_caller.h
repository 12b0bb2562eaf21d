// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SIM_CALLER_H_
#define QUIRE_TESTS_SIM_SIM_CALLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "scheduler/request.h"
#include "tests/sim/poison_watch.h"
#include "tests/sim/shadow_model.h"

namespace quire {

// The caller of one request. It knows what the request generates when it runs alone. It reports the first event that
// differs from this, comes twice or comes too late. It ends samples and the request as TokenStream does. Its calls take
// effect when the step loop takes them out of the inbox. Until then events still come, and they must still be right.
class SimCaller : public RequestSink, public std::enable_shared_from_this<SimCaller> {
 public:
  // With `poison`, a worker that computes the request fails.
  SimCaller(Request request, const ShadowModel& model, std::optional<Poison> poison = std::nullopt);
  // The stream of the same request in another manager. It has had no event.
  std::shared_ptr<SimCaller> Again() const;
  // The same, if a worker of this generation, which computes this model, has what the request has become. The stream
  // must be told again where the tokens have got other numerics.
  std::shared_ptr<SimCaller> RestoredOn(GenerationId generation, const ShadowModel& model) const;
  // The client starts the request again, which has another record then. It gets the same tokens.
  std::shared_ptr<SimCaller> SentAgain(std::string record) const;
  // The client starts the request again on a worker with this model, and forgets the tokens that it has. The new
  // request has this generation, record and other tokens.
  std::shared_ptr<SimCaller> BegunAgain(GenerationId generation, const ShadowModel& model, std::string record) const;
  // The request moves to a worker of this generation, which computes this model.
  void OnMoved(GenerationId generation, const ShadowModel& model) {
    next_generation_ = generation;
    next_model_ = model;
  }
  // The manager is dead: what its step loops still say while they are destroyed is not heard.
  void OnManagerLost() { is_deaf_ = true; }

  void OnStarted(int num_cached_tokens) override;
  void OnPinned(std::vector<int> num_tokens) override;
  void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) override;
  void OnEmbedding(std::vector<float> values) override;
  void OnToken(int sample_index, int position, ScoredToken token) override;
  void OnNumericsChanged(int sample_index, int position) override;
  void OnFinished(const Finished& finished) override;
  void OnFailed(absl::Status status) override;

  // Whether the caller may end the sample, as after a stop string: the sample has emitted something and continues.
  bool MayEndSample(int sample_index) const;
  void EndSample(int sample_index);
  // Whether the caller has seen the end of all samples while the loop still runs the request, which must be cancelled.
  bool WantsEnd() const { return num_running_ == 0 && !has_ended_ && !is_cancel_posted_; }
  // The caller has put a cancel of the request into the inbox.
  void OnCancelPosted() { is_cancel_posted_ = true; }

  // The loop has taken the end of the sample, or the cancel, out of the inbox. OnCancelTaken returns whether this
  // cancel has ended the request.
  void OnSampleEndTaken(int sample_index);
  bool OnCancelTaken();

  // Its generation belongs to the worker that it was last told of.
  const Request& request() const { return request_; }
  const std::optional<Poison>& poison() const { return poison_; }
  bool has_started() const { return has_started_; }
  bool has_ended() const { return has_ended_; }
  // Returns whether the manager could not continue the request, because its worker has
  // lost tokens with other numerics.
  bool is_lost() const;
  // Returns whether its stream, or one before it, was told of other numerics.
  bool has_changed_numerics() const { return !changes_.empty(); }
  // The loop has ended the sample.
  bool has_sample_ended(int sample_index) const { return samples_[sample_index].state == Sample::State::kEnded; }
  // The scheduler has ended all samples. The loop may not know yet that the request has ended.
  bool has_left_scheduler() const { return num_ended_ == num_outputs(); }
  bool is_cancel_posted() const { return is_cancel_posted_; }
  const absl::Status& failure() const { return failure_; }  // The error of OnFailed.
  int num_cached_tokens() const { return num_cached_tokens_; }
  const std::vector<int>& pinned_tokens() const { return pinned_tokens_; }  // Empty until it is told of its pins.
  // Whether it was told of them since the last call.
  bool TakePinNews() { return std::exchange(has_pin_news_, false); }
  int64_t num_tokens() const { return num_tokens_; }  // Emitted by all samples together.
  const absl::Status& status() const { return status_; }

  // The prompt and the output of a sample.
  std::vector<TokenId> Transcript(int sample_index) const;
  int num_outputs() const { return static_cast<int>(solo_->samples.size()); }
  int num_tokens_of(int sample_index) const { return samples_[sample_index].num_tokens; }

 private:
  SimCaller(Request request, const ShadowModel& model, std::shared_ptr<const SoloOutput> solo,
            std::optional<Poison> poison);

  struct Sample {
    enum class State {
      kRuns,
      kEndPosted,  // The caller has ended it, and the loop does not know this yet.
      kEnded,
    };

    int num_tokens = 0;
    State state = State::kRuns;
  };

  template <typename... Parts>
  void Complain(const Parts&... parts);

  Request request_;
  const ShadowModel model_;  // Of the first token.
  const std::optional<Poison> poison_;
  std::shared_ptr<const SoloOutput> solo_;
  GenerationId next_generation_;  // See OnMoved.
  ShadowModel next_model_;
  std::map<int, std::vector<ModelChange>> changes_;  // By sample; 0 for beams.
  bool has_mixed_numerics_ = false;  // A sample had drawn a token at a change, so no worker can restart.
  // By sample or hypothesis: from this number of generated tokens on it had other numerics under an earlier manager,
  // and the stream has to be told so before.
  std::map<int, int> untold_;
  // The only place where the state of a sample changes. Returns its old state.
  Sample::State SetState(Sample* sample, Sample::State state);

  std::vector<Sample> samples_;
  int num_running_;    // Samples in state kRuns.
  int num_ended_ = 0;  // Samples in state kEnded.
  size_t num_prompt_logprobs_ = 0;
  bool has_embedding_ = false;
  bool is_deaf_ = false;
  bool has_started_ = false;
  bool is_cancel_posted_ = false;
  bool has_ended_ = false;
  absl::Status failure_;
  int num_cached_tokens_ = 0;
  std::vector<int> pinned_tokens_;
  bool has_pin_news_ = false;
  int64_t num_tokens_ = 0;
  absl::Status status_;
};

// Sums over callers whose requests have ended.
struct CallerTotals {
  int64_t requests = 0;
  int64_t tokens = 0;  // Emitted.
  int64_t cached_tokens = 0;
  int64_t prompt_tokens = 0;

  void Add(const SimCaller& caller);
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_CALLER_H_
