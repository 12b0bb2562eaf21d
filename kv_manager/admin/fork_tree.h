#ifndef QUIRE_KV_MANAGER_ADMIN_FORK_TREE_H_
#define QUIRE_KV_MANAGER_ADMIN_FORK_TREE_H_

#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// Entries [first_block, first_block + num_blocks) of some block tables that are the same in all of these and in no
// other: what forks have in common is a node, what each has for itself a child.
struct ForkNode {
  int parent = -1;             // Index of the node with the entries before; -1: there are none.
  std::vector<int> sequences;  // Indices of the tables, ascending.
  int first_block = 0;
  int num_blocks = 0;  // 0: this table ends where others go on.

  bool operator==(const ForkNode&) const = default;
};

// How tables fork, parents before children. Tables {1, 2, 3} and {1, 2, 4} make a node of two entries that both have
// and two children of one; tables without a common first entry make trees of their own. An empty table is in no node.
std::vector<ForkNode> BuildForkTree(absl::Span<const std::vector<BlockId>> tables);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_FORK_TREE_H_
