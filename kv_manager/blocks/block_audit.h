// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_AUDIT_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_AUDIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace quire {

// A count of the block manager that differs from what a recount of the holders has found.
struct CountDifference {
  enum class Kind {
    kReferences,      // References to a block of the pool.
    kCopies,          // Copies in flight from or to a block of the pool.
    kHostReferences,  // References to a block of the host tier.
    kCached,          // 1 when the prefix cache holds the block of the pool, else 0.
  };
  Kind kind = Kind::kReferences;
  BlockId block{0};
  int counted = 0;     // The count of the block manager.
  int recomputed = 0;  // The count of the recount.

  bool operator==(const CountDifference&) const = default;
};

// The result of a recount of all references (see BlockRecount).
struct BlockAudit {
  static constexpr size_t kMaxDifferences = 100;

  int num_blocks = 0;                             // Blocks of the pool and of the host tier.
  int64_t num_references = 0;                     // References that the recount has found.
  std::vector<CountDifference> differences = {};  // The first kMaxDifferences.
  int num_differences = 0;                        // The number of all differences.
  absl::Status contradiction = {};  // The first error in free lists, sums or the shape of the prefix tree, or OK.

  bool is_clean() const { return num_differences == 0 && contradiction.ok(); }

  // OK when the audit is clean. Otherwise the error names the contradiction or else the first difference.
  absl::Status ToStatus() const;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_AUDIT_H_
