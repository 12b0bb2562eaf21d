// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/answer_memory.h"

#include <algorithm>
#include <utility>

namespace quire {

bool AnswerMemory::Hold::Resize(size_t num_bytes) {
  const size_t before = std::exchange(num_bytes_, num_bytes);
  if (num_bytes == before) return true;
  size_t& of_caller = state_->callers[caller_];
  of_caller += num_bytes - before;
  state_->num_bytes += num_bytes - before;
  const bool fits = of_caller <= state_->max_bytes - std::min(state_->max_bytes, state_->num_bytes);
  if (of_caller == 0) state_->callers.erase(caller_);
  return fits || num_bytes < before;
}

}  // namespace quire
