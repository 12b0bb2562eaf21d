// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/restore_request.h"

#include <numeric>
#include <utility>

namespace quire {

int RestoredCopy::num_all_tokens() const {
  return std::accumulate(num_tokens.begin(), num_tokens.end(), 0);
}

bool IsLaterCopy(const RestoredCopy& copy, const RestoredCopy& other) {
  return std::pair(copy.num_moves, copy.num_all_tokens()) > std::pair(other.num_moves, other.num_all_tokens());
}

}  // namespace quire
