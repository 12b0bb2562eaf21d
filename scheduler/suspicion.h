// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SUSPICION_H_
#define QUIRE_SCHEDULER_SUSPICION_H_

namespace quire {

// What the losses of workers tell about one request: whether it may be the one that makes workers fail. The counts
// belong to the request, so they go with it from worker to worker. Owned by the step-loop thread.
//
// A request that makes its worker fail does it at a certain token of one of its sequences. So this sequence never gets
// beyond its slices that were in flight when the worker was lost. Each sequence knows where that was (see
// Sequence::is_behind_loss). A request is innocent when all its sequences have got beyond these slices and one of them
// has got farther than ever before: all its losses are forgotten. A loss says little about a request whose slices in
// flight were only recomputed, because an earlier worker has answered the same slices.
class Suspicion {
 public:
  // Number of losses that make a request suspect, unless the worker has named it. A suspect runs alone.
  static constexpr int kLossesToSuspect = 2;
  // Number of further losses that convict it; one if the worker has named it.
  static constexpr int kLoneLossesToConvict = 2;
  // The same limits for losses of any kind. They bound the losses by a request that fails its worker at random.
  static constexpr int kAnyLossesToSuspect = 8;
  static constexpr int kAnyLossesToConvict = 16;

  // The worker has answered a slice of a sequence of the request, and the sequence got farther than ever before.
  void OnFarther() { has_got_farther_ = true; }

  // The worker was lost while slices of the request were in flight. If the request is suspect, there were no slices of
  // other requests. `is_at_front`: one of the slices ended farther than the answered slices of its sequence.
  // `is_named`: the worker has said that it failed at this request.
  void OnLost(bool is_at_front, bool is_named);

  // The losses are forgotten.
  void Clear();

  // Returns whether a sequence got farther than ever before since the last loss.
  bool has_got_farther() const { return has_got_farther_; }
  // The request must run alone.
  bool is_suspect() const {
    return is_named_ || num_losses_at_front_ >= kLossesToSuspect || num_losses_ >= kAnyLossesToSuspect;
  }
  // The request must fail.
  bool is_convicted() const {
    return num_lone_losses_ >= (is_named_ ? 1 : kLoneLossesToConvict) ||
           (num_lone_losses_ > 0 && num_losses_ >= kAnyLossesToConvict);
  }
  int num_losses() const { return num_losses_; }

 private:
  int num_losses_ = 0;           // The losses since the request was cleared.
  int num_losses_at_front_ = 0;  // Losses with is_at_front.
  int num_lone_losses_ = 0;      // Losses while the request was suspect, so it ran alone.
  bool has_got_farther_ = false;
  bool is_named_ = false;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SUSPICION_H_
