// SPDX-License-Identifier: Apache-2.0

#include "scheduler/tenant_blocks.h"

#include <algorithm>
#include <limits>

#include "scheduler/request_size.h"

namespace quire {
namespace {

// The blocks that the group holds while it runs, with those that it takes when it enters. Its sequences share the whole
// blocks of the prompt. A sample that is yet to be forked counts with one block.
int64_t BlocksOf(const SequenceGroup& group, const CacheGroups& groups) {
  const int64_t num_shared = groups.NumSharedBlocks(static_cast<int64_t>(group.request().prompt.size()));
  int64_t num_blocks = num_shared + group.num_rows() - group.num_sequences();
  for (const auto& sequence : group.sequences()) {
    num_blocks += std::max<int64_t>(0, groups.NumBlocks(sequence->num_known_tokens()) - num_shared);
  }
  return std::min(num_blocks, MaxBlocks(group.request(), groups));
}

}  // namespace

TenantBlocks::TenantBlocks(const TenantShares* shares, const BlockManager& blocks,
                           absl::Span<SequenceGroup* const> running)
    : shares_(shares), blocks_(blocks) {
  for (const SequenceGroup* const group : running) {
    if (group->is_running()) Add(*group);
  }
}

bool TenantBlocks::HasRoomFor(const SequenceGroup& group) const {
  const std::string& tenant = group.request().tenant;
  const int64_t num_held = NumHeld(tenant);
  return num_held == 0 || num_held + NumBlocks(group) <= Limit(tenant);
}

int64_t TenantBlocks::NumBlocks(const SequenceGroup& group) const {
  return BlocksOf(group, blocks_.groups());
}

void TenantBlocks::Add(const SequenceGroup& group) {
  held_[group.request().tenant] += NumBlocks(group);
}

int64_t TenantBlocks::NumHeld(const std::string& tenant) const {
  const auto it = held_.find(tenant);
  return it == held_.end() ? 0 : it->second;
}

int64_t TenantBlocks::Limit(const std::string& tenant) const {
  const double share = shares_->Of(tenant).max_blocks_share;
  // Shared blocks count several times, so a tenant may hold more than the pool has.
  return share < 1 ? BlocksOfShare(share, blocks_.num_blocks()) : std::numeric_limits<int64_t>::max();
}

}  // namespace quire
