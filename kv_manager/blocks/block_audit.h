#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_AUDIT_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_AUDIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace quire {

// A count of a block manager that differs from what those who hold the block say.
struct CountDifference {
  enum class Kind {
    kReferences,      // To a block of the pool.
    kCopies,          // In flight, from or to a block of the pool.
    kHostReferences,  // To a block of the host tier.
    kCached,          // Whether the cache holds it: 1 or 0.
  };
  Kind kind = Kind::kReferences;
  BlockId block{0};
  int counted = 0;
  int recomputed = 0;

  bool operator==(const CountDifference&) const = default;
};

// What a recount of all references has found.
struct BlockAudit {
  static constexpr size_t kMaxDifferences = 100;

  int num_blocks = 0;                             // Of pool and host tier.
  int64_t num_references = 0;                     // Recomputed.
  std::vector<CountDifference> differences = {};  // The first kMaxDifferences.
  int num_differences = 0;
  absl::Status contradiction = {};  // Of another kind: free lists, sums, the shape of the prefix tree.

  bool is_clean() const { return num_differences == 0 && contradiction.ok(); }
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_AUDIT_H_
