#ifndef QUIRE_SCHEDULER_SUSPICION_H_
#define QUIRE_SCHEDULER_SUSPICION_H_

namespace quire {

// What the losses of workers say about one request: whether it may be the one that makes workers fail. The counts
// belong to the request, so they go with it from worker to worker. Owned by the step-loop thread.
//
// A request that makes its worker fail does so at a certain token. So it never gets beyond the slices that were in
// flight when the worker was lost. A request that gets beyond them, and farther than ever before, is innocent: all its
// losses are forgotten. A loss says little about a request whose slices in flight were only recomputed, because an
// earlier worker has answered the same slices.
class Suspicion {
 public:
  // So many losses make a request suspect, unless the worker has named it. A suspect runs alone.
  static constexpr int kLossesToSuspect = 2;
  // So many further losses while it ran alone convict it, or one if the worker has named it.
  static constexpr int kLoneLossesToConvict = 2;
  // The same limits for losses of any kind. They bound the losses by a request that fails its worker at random.
  static constexpr int kAnyLossesToSuspect = 8;
  static constexpr int kAnyLossesToConvict = 16;

  // The worker has answered a slice of the request that ends at `position`. Returns whether the request was suspect
  // and is cleared by this.
  bool OnAnswered(int position) {
    if (position <= reached_) return false;
    reached_ = position;
    return num_losses_ > 0 && position >= lost_at_ && Clear();
  }

  // The worker was lost while slices of the request were in flight, which ended at `position` at most. `is_alone`:
  // there were no slices of other requests. `is_named`: the worker has said that it failed at this request.
  void OnLost(int position, bool is_alone, bool is_named);

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
  bool Clear();

  int reached_ = 0;              // The farthest end of an answered slice.
  int lost_at_ = 0;              // The farthest end of a slice that was in flight at one of the losses.
  int num_losses_ = 0;           // The losses since the request was cleared.
  int num_losses_at_front_ = 0;  // Those with slices in flight that went beyond `reached_`.
  int num_lone_losses_ = 0;      // Those while the request was suspect and ran alone.
  bool is_named_ = false;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SUSPICION_H_
