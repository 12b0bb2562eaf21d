// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_pins.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

absl::Status TooMany(const char* what, int num_new, size_t num_held, int limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the pin adds ", num_new, " blocks to ", num_held, " pinned ones", what, ", the limit is ", limit));
}

constexpr auto kExpiresEarlier = [](const auto& a, const auto& b) { return a.second.expires_us < b.second.expires_us; };

}  // namespace

absl::StatusOr<int> PrefixPins::Pin(absl::string_view salt, absl::Span<const TokenId> tokens, int64_t expires_us) {
  const PrefixTree::Hit hit = tree_->Find(salt, tokens, static_cast<int>(tokens.size()));
  if (hit.blocks.empty()) return 0;
  const int num_new = NumNew(hit.blocks, num_own_pins_);
  if (static_cast<int>(num_own_pins_.size()) + num_new > max_blocks_) {
    return TooMany("", num_new, num_own_pins_.size(), max_blocks_);
  }
  Key key = KeyOf(salt, tokens);
  const auto old = pins_.find(key);
  const bool is_new = old == pins_.end();
  if (is_new && static_cast<int>(pins_.size()) >= max_blocks_) {
    return absl::ResourceExhaustedError(absl::StrCat("there are ", pins_.size(), " pins, the limit is ", max_blocks_));
  }
  while (num_tenant_pins_ > 0 &&
         (num_blocks() + NumNew(hit.blocks, num_pins_) > max_blocks_ || num_pins() + is_new > max_blocks_)) {
    EndOneOfTenants();
  }
  Held held = Hold(hit.blocks, expires_us, &num_own_pins_);
  if (!is_new) {
    Release(old->second, &num_own_pins_);
    pins_.erase(old);
  }
  pins_.emplace(std::move(key), std::move(held));
  return static_cast<int>(hit.blocks.size());
}

absl::StatusOr<int> PrefixPins::PinForTenant(const std::string& tenant, int max_blocks, absl::string_view salt,
                                             absl::Span<const TokenId> tokens, int64_t expires_us) {
  const PrefixTree::Hit hit = tree_->Find(salt, tokens, static_cast<int>(tokens.size()));
  if (hit.blocks.empty()) return 0;
  const auto known = tenants_.find(tenant);
  static const Tenant kNone;
  const Tenant& before = known == tenants_.end() ? kNone : known->second;
  const int num_new_of_tenant = NumNew(hit.blocks, before.num_pins);
  if (static_cast<int>(before.num_pins.size()) + num_new_of_tenant > max_blocks) {
    return TooMany(" of the tenant", num_new_of_tenant, before.num_pins.size(), max_blocks);
  }
  const int num_new = NumNew(hit.blocks, num_pins_);
  if (num_blocks() + num_new > max_blocks_) return TooMany("", num_new, num_pins_.size(), max_blocks_);
  if (const auto renewed = before.pins.find(hit.blocks.back()); renewed != before.pins.end()) {
    expires_us = std::max(expires_us, renewed->second.expires_us);
  }
  // Pins of shorter prefixes that end no later than this one keep nothing that it does not keep.
  std::vector<BlockId> replaced;
  for (const BlockId block : hit.blocks) {
    const auto old = before.pins.find(block);
    if (old != before.pins.end() && old->second.expires_us <= expires_us) replaced.push_back(block);
  }
  if (num_pins() - static_cast<int>(replaced.size()) >= max_blocks_) {
    return absl::ResourceExhaustedError(absl::StrCat("there are ", num_pins(), " pins, the limit is ", max_blocks_));
  }
  Tenant& owner = tenants_[tenant];
  Held held = Hold(hit.blocks, expires_us, &owner.num_pins);
  for (const BlockId block : replaced) {
    Release(owner.pins.extract(block).mapped(), &owner.num_pins);
    --num_tenant_pins_;
  }
  owner.pins.emplace(hit.blocks.back(), std::move(held));
  ++num_tenant_pins_;
  return static_cast<int>(hit.blocks.size());
}

bool PrefixPins::Unpin(absl::string_view salt, absl::Span<const TokenId> tokens) {
  const auto pin = pins_.find(KeyOf(salt, tokens));
  if (pin == pins_.end()) return false;
  Release(pin->second, &num_own_pins_);
  pins_.erase(pin);
  return true;
}

template <typename Pins>
void PrefixPins::ExpireAll(int64_t now_us, Pins* pins, PinCounts* owner) {
  for (auto pin = pins->begin(); pin != pins->end();) {
    if (pin->second.expires_us <= now_us) {
      Release(pin->second, owner);
      pin = pins->erase(pin);
    } else {
      next_expiry_us_ = std::min(next_expiry_us_, pin->second.expires_us);
      ++pin;
    }
  }
}

void PrefixPins::Expire(int64_t now_us) {
  if (now_us < next_expiry_us_) return;
  next_expiry_us_ = INT64_MAX;
  ExpireAll(now_us, &pins_, &num_own_pins_);
  num_tenant_pins_ = 0;
  for (auto tenant = tenants_.begin(); tenant != tenants_.end();) {
    ExpireAll(now_us, &tenant->second.pins, &tenant->second.num_pins);
    num_tenant_pins_ += static_cast<int>(tenant->second.pins.size());
    tenant = tenant->second.pins.empty() ? tenants_.erase(tenant) : std::next(tenant);
  }
}

bool PrefixPins::EndOne() {
  if (num_pins() == 0) return false;
  if (num_tenant_pins_ > 0) {
    EndOneOfTenants();
  } else {
    const auto first = std::min_element(pins_.begin(), pins_.end(), kExpiresEarlier);
    Release(first->second, &num_own_pins_);
    pins_.erase(first);
  }
  if (num_pins() == 0) next_expiry_us_ = INT64_MAX;
  return true;
}

void PrefixPins::EndOneOfTenants() {
  auto first_tenant = tenants_.end();
  std::map<BlockId, Held>::iterator first;
  for (auto tenant = tenants_.begin(); tenant != tenants_.end(); ++tenant) {
    std::map<BlockId, Held>& pins = tenant->second.pins;
    const auto pin = std::min_element(pins.begin(), pins.end(), kExpiresEarlier);
    if (first_tenant != tenants_.end() && !kExpiresEarlier(*pin, *first)) continue;
    first_tenant = tenant;
    first = pin;
  }
  Release(first->second, &first_tenant->second.num_pins);
  first_tenant->second.pins.erase(first);
  if (first_tenant->second.pins.empty()) tenants_.erase(first_tenant);
  --num_tenant_pins_;
}

void PrefixPins::Clear() {
  pins_.clear();
  num_own_pins_.clear();
  tenants_.clear();
  num_tenant_pins_ = 0;
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

int PrefixPins::NumNew(absl::Span<const BlockId> blocks, const PinCounts& counts) {
  return static_cast<int>(
      std::count_if(blocks.begin(), blocks.end(), [&](BlockId block) { return !counts.contains(block); }));
}

PrefixPins::Held PrefixPins::Hold(absl::Span<const BlockId> blocks, int64_t expires_us, PinCounts* owner) {
  Held held{{}, expires_us};
  held.blocks.reserve(blocks.size());
  for (const BlockId block : blocks) {
    held.blocks.push_back(tree_->Share(block));
    ++num_pins_[block];
    ++(*owner)[block];
  }
  next_expiry_us_ = std::min(next_expiry_us_, expires_us);
  return held;
}

void PrefixPins::Release(const Held& held, PinCounts* owner) {
  for (const BlockRef& block : held.blocks) {
    for (PinCounts* const counts : {&num_pins_, owner}) {
      const auto it = counts->find(block.id());
      if (--it->second == 0) counts->erase(it);
    }
  }
}

}  // namespace quire
