// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_pins.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire {

absl::StatusOr<int> PrefixPins::Pin(absl::string_view salt, absl::Span<const TokenId> tokens, int64_t expires_us) {
  const PrefixTree::Hit hit = tree_->Find(salt, tokens, static_cast<int>(tokens.size()));
  if (hit.blocks.empty()) return 0;
  const auto num_new =
      std::count_if(hit.blocks.begin(), hit.blocks.end(), [&](BlockId block) { return NumPins(block) == 0; });
  if (num_blocks() + num_new > max_blocks_) {
    return absl::ResourceExhaustedError(absl::StrCat("the pin adds ", num_new, " blocks to ", num_blocks(),
                                                     " pinned ones, the limit is ", max_blocks_));
  }
  Key key = KeyOf(salt, tokens);
  const auto old = pins_.find(key);
  if (old == pins_.end() && num_pins() >= max_blocks_) {
    return absl::ResourceExhaustedError(absl::StrCat("there are ", num_pins(), " pins, the limit is ", max_blocks_));
  }
  Held held{{}, expires_us};
  for (BlockId block : hit.blocks) {
    held.blocks.push_back(tree_->Share(block));
    ++num_pins_[block];
  }
  if (old != pins_.end()) End(old);
  pins_.emplace(std::move(key), std::move(held));
  next_expiry_us_ = std::min(next_expiry_us_, expires_us);
  return static_cast<int>(hit.blocks.size());
}

bool PrefixPins::Unpin(absl::string_view salt, absl::Span<const TokenId> tokens) {
  const auto pin = pins_.find(KeyOf(salt, tokens));
  if (pin == pins_.end()) return false;
  End(pin);
  return true;
}

void PrefixPins::Expire(int64_t now_us) {
  if (now_us < next_expiry_us_) return;
  next_expiry_us_ = INT64_MAX;
  for (auto pin = pins_.begin(); pin != pins_.end();) {
    if (pin->second.expires_us <= now_us) {
      pin = End(pin);
    } else {
      next_expiry_us_ = std::min(next_expiry_us_, pin->second.expires_us);
      ++pin;
    }
  }
}

bool PrefixPins::EndOne() {
  if (pins_.empty()) return false;
  End(std::min_element(pins_.begin(), pins_.end(),
                       [](const auto& a, const auto& b) { return a.second.expires_us < b.second.expires_us; }));
  if (pins_.empty()) next_expiry_us_ = INT64_MAX;
  return true;
}

void PrefixPins::Clear() {
  pins_.clear();
  num_pins_.clear();
  next_expiry_us_ = INT64_MAX;
}

int PrefixPins::NumPins(BlockId block) const {
  const auto it = num_pins_.find(block);
  return it == num_pins_.end() ? 0 : it->second;
}

PrefixPins::Key PrefixPins::KeyOf(absl::string_view salt, absl::Span<const TokenId> tokens) {
  return {std::string(salt), {tokens.begin(), tokens.end()}};
}

PrefixPins::Pins::iterator PrefixPins::End(Pins::iterator pin) {
  for (const BlockRef& block : pin->second.blocks) {
    const auto it = num_pins_.find(block.id());
    if (--it->second == 0) num_pins_.erase(it);
  }
  return pins_.erase(pin);
}

}  // namespace quire
