// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_PREFIX_PINS_H_
#define QUIRE_KV_MANAGER_BLOCKS_PREFIX_PINS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_pool.h"
#include "kv_manager/blocks/prefix_tree.h"

namespace quire {

// Prefixes that stay cached until their pin expires. A pin holds references to its blocks like a sequence, so these
// blocks are used and never evicted. Operators make pins, and so do requests, each for its tenant. Those of requests
// give way to those of operators. All times are of the same clock of the caller. Owned by the step-loop thread.
class PrefixPins {
 public:
  // At most `max_blocks` different blocks are pinned at a time, by at most `max_blocks` pins. `tree` is borrowed.
  PrefixPins(PrefixTree* tree, int max_blocks) : tree_(tree), max_blocks_(max_blocks) {}

  // Pins the cached whole blocks of `tokens` for an operator and returns how many these are. A second pin of the same
  // tokens replaces the first one. Pins of requests end, the first to expire first, when it would exceed a limit with
  // them. RESOURCE_EXHAUSTED, and nothing has changed, when it would exceed one without them.
  absl::StatusOr<int> Pin(absl::string_view salt, absl::Span<const TokenId> tokens, int64_t expires_us);

  // The same for a request of a tenant, whose pins hold at most `max_blocks` different blocks. A pin of the same blocks
  // by the same tenant is renewed, and never ends earlier than before. RESOURCE_EXHAUSTED, and nothing has changed,
  // when a limit would be exceeded.
  absl::StatusOr<int> PinForTenant(const std::string& tenant, int max_blocks, absl::string_view salt,
                                   absl::Span<const TokenId> tokens, int64_t expires_us);

  // Ends the pin that an operator has made of these tokens. Returns false when there is none.
  bool Unpin(absl::string_view salt, absl::Span<const TokenId> tokens);

  // Ends all pins with expires_us <= now_us. Cheap when there are none.
  void Expire(int64_t now_us);

  // Ends the pin that expires first, among those of requests if there are any; of several, the one with the smallest
  // key. Returns false when there is no pin.
  bool EndOne();

  void Clear();

  // No pin expires before this time. INT64_MAX when there is no pin.
  int64_t next_expiry_us() const { return next_expiry_us_; }
  int num_blocks() const { return static_cast<int>(num_pins_.size()); }  // Different blocks that are pinned.
  int num_pins() const { return static_cast<int>(pins_.size()) + num_tenant_pins_; }
  int NumPins(BlockId block) const;  // The number of references that pins hold to the block.
  // The different pinned blocks, and how often each is pinned.
  const absl::flat_hash_map<BlockId, int>& blocks() const { return num_pins_; }

 private:
  using Key = std::pair<std::string, std::vector<TokenId>>;  // Salt and tokens of the pinned prefix.
  using PinCounts = absl::flat_hash_map<BlockId, int>;       // Says how often each block is pinned; never 0.

  struct Held {
    std::vector<BlockRef> blocks;
    int64_t expires_us;
  };

  struct Tenant {
    // The key is the last block, which stands for the prefix as long as the pin holds it. Conversations grow with every
    // request, and their tokens would need more memory.
    std::map<BlockId, Held> pins;
    PinCounts num_pins;
  };
  using Tenants = std::map<std::string, Tenant>;  // None is without pins.

  static Key KeyOf(absl::string_view salt, absl::Span<const TokenId> tokens);
  // The number of `blocks` that have no pin in `counts`.
  static int NumNew(absl::Span<const BlockId> blocks, const PinCounts& counts);
  Held Hold(absl::Span<const BlockId> blocks, int64_t expires_us, PinCounts* owner);
  void Release(const Held& held, PinCounts* owner);
  template <typename Pins>
  void ExpireAll(int64_t now_us, Pins* pins, PinCounts* owner);
  // REQUIRES: a request has made a pin.
  void EndOneOfTenants();

  PrefixTree* const tree_;
  const int max_blocks_;
  std::map<Key, Held> pins_;  // Those of operators.
  PinCounts num_own_pins_;    // By pins_.
  Tenants tenants_;
  int num_tenant_pins_ = 0;
  PinCounts num_pins_;  // By all of them.
  int64_t next_expiry_us_ = INT64_MAX;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_PINS_H_
