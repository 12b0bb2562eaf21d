// SPDX-License-Identifier: Apache-2.0

#include "scheduler/stop.h"

#include <algorithm>

namespace quire {

std::optional<FinishReason> StopReason(const Request& request, int num_generated, TokenId token) {
  const std::vector<TokenId>& stops = request.stop_token_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return FinishReason::kStopToken;
  if (num_generated >= request.max_tokens) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace quire
