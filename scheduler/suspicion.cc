#include "scheduler/suspicion.h"

#include <algorithm>

namespace quire {

void Suspicion::OnLost(int position, bool is_alone, bool is_named) {
  const bool is_at_front = position > reached_;
  const bool counts_alone = is_alone && is_suspect() && (is_at_front || num_losses_ + 1 >= kAnyLossesToConvict);
  ++num_losses_;
  num_losses_at_front_ += is_at_front;
  num_lone_losses_ += counts_alone;
  lost_at_ = std::max(lost_at_, position);
  is_named_ |= is_named;
}

bool Suspicion::Clear() {
  const bool was_suspect = is_suspect();
  num_losses_ = 0;
  num_losses_at_front_ = 0;
  num_lone_losses_ = 0;
  lost_at_ = 0;
  is_named_ = false;
  return was_suspect;
}

}  // namespace quire
