// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_TENANT_BLOCKS_H_
#define QUIRE_SCHEDULER_TENANT_BLOCKS_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "scheduler/block_manager.h"
#include "scheduler/sequence_group.h"
#include "scheduler/tenant_shares.h"

namespace quire {

// How many blocks the running groups of each tenant hold, compared with the limits of their tenants. A block that
// several groups share counts for each of them, so the count of a group depends on the group alone. It is made for one
// decision, or for one plan.
class TenantBlocks {
 public:
  // Counts the blocks of the groups of `running` that run. `shares` and `blocks` are borrowed.
  TenantBlocks(const TenantShares* shares, const BlockManager& blocks, absl::Span<SequenceGroup* const> running);

  // Returns whether the group may enter: its tenant then holds at most what it may, or holds nothing now. So a group
  // that is larger than the limit, because the limit was lowered or the pool replaced, still runs alone.
  bool HasRoomFor(const SequenceGroup& group) const;
  // Returns what the group counts for.
  int64_t NumBlocks(const SequenceGroup& group) const;
  // The group has entered.
  void Add(const SequenceGroup& group);

  // Returns whether the tenant holds more than it may.
  bool IsOver(const std::string& tenant) const { return NumHeld(tenant) > Limit(tenant); }
  int64_t NumHeld(const std::string& tenant) const;
  int64_t Limit(const std::string& tenant) const;  // Very large when the tenant may hold the whole pool.

 private:
  const TenantShares* const shares_;
  const BlockManager& blocks_;
  absl::flat_hash_map<std::string, int64_t> held_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_TENANT_BLOCKS_H_
