// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/body_memory.h"

#include <utility>

namespace quire {
namespace {

// Time without growth after which a body is dropped before others.
constexpr std::chrono::seconds kStall(1);

}  // namespace

BodyMemory::Share::~Share() {
  memory_->Take(this, 0);
}

bool BodyMemory::Share::Grow(int64_t num_bytes) {
  last_growth_ = Clock::now();
  const int64_t wanted = num_bytes <= kSmallBytes ? 0 : num_bytes;
  const int64_t num_more = wanted - num_bytes_;
  while (memory_->num_bytes_ + num_more > memory_->max_bytes_ ||
         memory_->BytesOf(address_) + num_more > memory_->max_address_bytes_) {
    Share* const victim = memory_->Victim(this, num_more);
    if (victim == nullptr) return false;
    // This destroys the victim.
    std::exchange(victim->drop_, nullptr)();
  }
  memory_->Take(this, wanted);
  return true;
}

void BodyMemory::Share::Complete() {
  drop_ = nullptr;
}

std::shared_ptr<BodyMemory::Share> BodyMemory::Begin(const std::string& address, std::function<void()> drop) {
  return std::shared_ptr<Share>(new Share(this, address, std::move(drop)));
}

void BodyMemory::Take(Share* share, int64_t num_bytes) {
  if (num_bytes == share->num_bytes_) return;
  Address& address = addresses_[share->address_];
  const int64_t num_more = num_bytes - std::exchange(share->num_bytes_, num_bytes);
  num_bytes_ += num_more;
  address.num_bytes += num_more;
  if (num_bytes > 0) {
    address.shares.insert(share);
  } else {
    address.shares.erase(share);
    if (address.shares.empty()) addresses_.erase(share->address_);
  }
}

int64_t BodyMemory::BytesOf(const std::string& address) const {
  const auto it = addresses_.find(address);
  return it == addresses_.end() ? 0 : it->second.num_bytes;
}

BodyMemory::Share* BodyMemory::Victim(Share* growing, int64_t num_more) const {
  const auto now = Share::Clock::now();
  const auto bytes_of = [&](const Share* share) { return share->num_bytes_ + (share == growing ? num_more : 0); };
  // Whether `a` is dropped before `b`: those that stall come first, then those that have most.
  const auto comes_first = [&](const Share* a, const Share* b) {
    const bool stalls[] = {now - a->last_growth_ > kStall, now - b->last_growth_ > kStall};
    return stalls[0] != stalls[1] ? stalls[0] : bytes_of(a) > bytes_of(b);
  };
  // The address that has most loses. One that has only whole bodies has nothing to lose.
  int64_t most_bytes = BytesOf(growing->address_) + num_more;
  const bool is_address_full = most_bytes > max_address_bytes_;
  Share* victim = growing;
  for (const auto& [name, address] : addresses_) {
    const bool is_own = name == growing->address_;
    if (!is_own && (is_address_full || address.num_bytes <= most_bytes)) continue;
    if (is_own && victim->address_ != name) continue;
    Share* first = is_own ? growing : nullptr;
    for (Share* const share : address.shares) {
      if (share->drop_ != nullptr && (first == nullptr || comes_first(share, first))) first = share;
    }
    if (first == nullptr) continue;
    victim = first;
    if (!is_own) most_bytes = address.num_bytes;
  }
  return victim == growing ? nullptr : victim;
}

}  // namespace quire
