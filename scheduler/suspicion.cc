// SPDX-License-Identifier: Apache-2.0

#include "scheduler/suspicion.h"

namespace quire {

void Suspicion::OnLost(bool is_at_front, bool is_named) {
  const bool counts_alone = is_suspect() && (is_at_front || num_losses_ + 1 >= kAnyLossesToConvict);
  ++num_losses_;
  num_losses_at_front_ += is_at_front;
  num_lone_losses_ += counts_alone;
  has_got_farther_ = false;
  is_named_ |= is_named;
}

void Suspicion::Clear() {
  *this = Suspicion();
}

}  // namespace quire
