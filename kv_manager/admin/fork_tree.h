// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_FORK_TREE_H_
#define QUIRE_KV_MANAGER_ADMIN_FORK_TREE_H_

#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// Entries [first_block, first_block + num_blocks) of block tables, which are equal in `sequences` and in no other
// table. What forks share is a node, and what each fork has alone is a child of it.
struct ForkNode {
  int parent = -1;             // Index of the node with the preceding entries; -1: this node has the first ones.
  std::vector<int> sequences;  // Indices of the tables, in ascending order.
  int first_block = 0;
  int num_blocks = 0;  // 0: this table ends where the others continue.

  bool operator==(const ForkNode&) const = default;
};

// Returns how tables fork; parents come before their children. Tables {1, 2, 3} and {1, 2, 4} make one node of two
// entries that both have, and two children of one entry each. Tables without a common first entry make separate trees.
// An empty table is in no node.
std::vector<ForkNode> BuildForkTree(absl::Span<const std::vector<BlockId>> tables);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_FORK_TREE_H_
