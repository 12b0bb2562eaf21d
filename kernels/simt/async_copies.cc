// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/async_copies.h"

#include <cstring>

namespace quire::simt {

void AsyncCopy::Land() {
  if (has_landed) return;
  has_landed = true;
  constexpr size_t kBytes = 16;
  if (from != nullptr) {
    std::memcpy(to, from, kBytes);
  } else {
    std::memset(to, 0, kBytes);
  }
}

void AsyncCopies::Reset() {
  copies_.clear();
  open_group_ = 0;
}

void AsyncCopies::Issue(AsyncCopy copy) {
  copy.group = open_group_;
  copies_.push_back(copy);
}

void AsyncCopies::LandOne(uint64_t random) {
  if (!copies_.empty()) copies_[random % copies_.size()].Land();
}

}  // namespace quire::simt
