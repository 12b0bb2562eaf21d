// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_STREAM_POSITIONS_H_
#define QUIRE_KV_MANAGER_REQUESTS_STREAM_POSITIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "kv_manager/requests/response_set.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Knows how far the samples of one stream are, and decides whether a client that has received some of them finds the
// rest in the stream. The caller guards it with a mutex.
class StreamPositions {
 public:
  using ReceivedSamples = google::protobuf::RepeatedPtrField<v1::ReceivedSample>;

  // An earlier manager may have sent `num_promised_tokens` of each sample, which the engine is going to tell again.
  StreamPositions(const ResponseSet& responses, int num_promised_tokens);

  // See TokenStream::LimitPromise.
  void LimitPromise(absl::Span<const int> num_tokens, bool is_over);

  // REQUIRES: `position` is the next one of the sample.
  void OnToken(int sample_index, int position);
  void OnSampleEnded(int sample_index) { has_end_[sample_index] = true; }
  // A client that came has what this stream has sent.
  void OnClientCame() { has_own_client_ = true; }

  int num_samples() const { return static_cast<int>(next_positions_.size()); }
  // The tokens that the engine has told, of all samples.
  int64_t NumTokens() const;
  // Returns what TokenStream::CheckReceived does. `is_running`: events still come from the engine.
  absl::Status Check(const ReceivedSamples& received, bool is_running) const;

 private:
  // Returns whether the end of this sample may have been sent. An earlier manager may have sent any.
  bool MayHaveSentEnd(size_t index, bool is_running) const;
  // Returns whether a client that has received all of this sample before the position finds the rest here.
  bool HasPosition(int index, uint32_t position) const;

  int num_returned_;
  bool picks_best_;
  int num_prompt_tokens_;
  bool has_promise_;
  int promised_position_;             // The position behind the promised tokens.
  std::vector<int> first_positions_;  // [num_samples]: the positions of the first tokens from the step loop.
  std::vector<int> next_positions_;   // [num_samples]: the positions of the next tokens.
  std::vector<bool> has_end_;         // [num_samples]: the sample has ended.
  // [num_returned]: the positions behind the tokens of LimitPromise. Empty: the whole promise holds.
  std::vector<int> repeated_positions_;
  bool has_own_client_ = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_STREAM_POSITIONS_H_
