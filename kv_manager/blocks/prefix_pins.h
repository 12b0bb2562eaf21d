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
// blocks are used and never evicted. All times are of the same clock of the caller. Owned by the step-loop thread.
class PrefixPins {
 public:
  // At most `max_blocks` different blocks are pinned at a time, by at most `max_blocks` pins. `tree` is borrowed.
  PrefixPins(PrefixTree* tree, int max_blocks) : tree_(tree), max_blocks_(max_blocks) {}

  // Pins the cached whole blocks of `tokens` and returns how many these are. A second pin of the same tokens replaces
  // the first one. RESOURCE_EXHAUSTED, and nothing has changed, when a limit would be exceeded.
  absl::StatusOr<int> Pin(absl::string_view salt, absl::Span<const TokenId> tokens, int64_t expires_us);

  // Ends the pin of these tokens. Returns false when they are not pinned.
  bool Unpin(absl::string_view salt, absl::Span<const TokenId> tokens);

  // Ends all pins with expires_us <= now_us. Cheap when there are none.
  void Expire(int64_t now_us);

  // Ends the pin that expires first; of several, the one with the smallest key. Returns false when there is no pin.
  bool EndOne();

  void Clear();

  // No pin expires before this time. INT64_MAX when there is no pin.
  int64_t next_expiry_us() const { return next_expiry_us_; }
  int num_blocks() const { return static_cast<int>(num_pins_.size()); }  // Different blocks that are pinned.
  int num_pins() const { return static_cast<int>(pins_.size()); }
  int NumPins(BlockId block) const;  // The number of references that pins hold to the block.
  // The different pinned blocks, and how often each is pinned.
  const absl::flat_hash_map<BlockId, int>& blocks() const { return num_pins_; }

 private:
  using Key = std::pair<std::string, std::vector<TokenId>>;  // Salt and tokens of the pinned prefix.

  struct Held {
    std::vector<BlockRef> blocks;
    int64_t expires_us;
  };
  using Pins = std::map<Key, Held>;

  static Key KeyOf(absl::string_view salt, absl::Span<const TokenId> tokens);
  Pins::iterator End(Pins::iterator pin);

  PrefixTree* const tree_;
  const int max_blocks_;
  Pins pins_;
  absl::flat_hash_map<BlockId, int> num_pins_;  // Says how often each block is pinned; never 0.
  int64_t next_expiry_us_ = INT64_MAX;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_PINS_H_
