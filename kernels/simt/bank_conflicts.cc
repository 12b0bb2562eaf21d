// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/bank_conflicts.h"

#include <algorithm>
#include <functional>

namespace quire::simt {
namespace {

constexpr uint32_t kBanks = 32;
constexpr uint32_t kBankBytes = 4;
constexpr uint32_t kAllLanes = 0xffffffff;

}  // namespace

size_t BankConflicts::KeyHash::operator()(const Key& key) const {
  const size_t place = std::hash<const char*>()(key.file) + key.line * size_t{1000003} + key.column * size_t{10007};
  return place + key.bytes;
}

int BankConflicts::CountConflicts(const Group& group) {
  const int lanes_at_once =
      group.bytes <= kBankBytes ? kWarpSize : static_cast<int>(kWarpSize * kBankBytes / group.bytes);
  int conflicts = 0;
  for (int first = 0; first < kWarpSize; first += lanes_at_once) {
    std::vector<uint32_t> words;
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      if ((group.lanes >> lane & 1) == 0) continue;
      const uint32_t end = group.offset[lane] + static_cast<uint32_t>(group.bytes);
      for (uint32_t word = group.offset[lane] / kBankBytes; word * kBankBytes < end; ++word) words.push_back(word);
    }
    // Lanes that use the same word share a pass.
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<int, kBanks> uses = {};
    int passes = 1;
    for (const uint32_t word : words) passes = std::max(passes, ++uses[word % kBanks]);
    conflicts += passes - 1;
  }
  return conflicts;
}

void BankConflicts::OnAccess(int thread, size_t offset, size_t bytes, const Place& place) {
  Warp& warp = warps_[thread / kWarpSize];
  Site& site = warp.sites[{place.file_name(), place.line(), place.column(), bytes}];
  const int lane = thread % kWarpSize;
  const int64_t index = site.num_made[lane]++ - site.num_complete;
  if (index == static_cast<int64_t>(site.open.size())) {
    site.open.push_back({.bytes = bytes});
    ++warp.num_open;
  }
  Group& group = site.open[index];
  group.lanes |= uint32_t{1} << lane;
  group.offset[lane] = static_cast<uint32_t>(offset);
  // Groups become complete in order, because a lane makes its n-th access before its next one.
  if (group.lanes != kAllLanes) return;
  count_ += CountConflicts(group);
  site.open.pop_front();
  --warp.num_open;
  ++site.num_complete;
}

void BankConflicts::OnMeeting(int warp) {
  if (warps_[warp].num_open == 0) return;
  warps_[warp].num_open = 0;
  for (auto& [key, site] : warps_[warp].sites) {
    for (const Group& group : site.open) count_ += CountConflicts(group);
    site = Site();
  }
}

}  // namespace quire::simt
