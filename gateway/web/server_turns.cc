// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/server_turns.h"

#include <algorithm>

namespace quire {

void ServerTurns::Push(const std::string& name, std::function<void()> piece) {
  Address& address = addresses_[name];
  if (address.pieces.empty()) {
    address.used_us = std::max(address.used_us, used_us_);
    waiting_.emplace(address.used_us, name);
  }
  address.pieces.push_back(std::move(piece));
}

void ServerTurns::Run(int64_t duration_us) {
  const int64_t begin_us = clock_->NowMicros();
  int64_t now_us = begin_us;
  do {
    if (waiting_.empty()) break;
    const std::string name = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    const auto it = addresses_.find(name);  // It stays, also while the piece pushes others.
    Address& address = it->second;
    used_us_ = address.used_us;
    {
      const std::function<void()> piece = std::move(address.pieces.front());
      piece();
    }
    // The address had this piece until now, so what it has pushed meanwhile is behind it.
    address.pieces.pop_front();
    const int64_t end_us = clock_->NowMicros();
    address.used_us += std::max<int64_t>(end_us - now_us, 1);
    now_us = end_us;
    if (!address.pieces.empty()) waiting_.emplace(address.used_us, name);
  } while (now_us - begin_us < duration_us);
  if (waiting_.empty()) {
    // Nobody has taken anything from others.
    addresses_.clear();
    used_us_ = 0;
  } else {
    std::erase_if(addresses_, [this](const auto& entry) {
      return entry.second.pieces.empty() && entry.second.used_us <= used_us_;
    });
  }
}

}  // namespace quire
