// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_TOKEN_TREE_H_
#define QUIRE_SCHEDULER_TOKEN_TREE_H_

#include <vector>

#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// Token lists that share their beginnings. Each list is a path from the root to a node, so nothing is copied to
// continue, fork or drop a list. The nodes count their holders and children, and a node without any is reused. Not
// thread-safe.
class TokenTree {
 public:
  using NodeId = int;
  static constexpr NodeId kRoot = 0;  // The empty list. It has no holder at first and is never dropped.

  // Returns the list of `parent` with one more token. The caller is a holder of the returned node. Equal lists of one
  // step share a node.
  NodeId Extend(NodeId parent, TokenLogprob token);

  // From here on a list that equals an older one gets a new node.
  void EndStep() { added_.clear(); }

  // The node has one more holder.
  void Hold(NodeId node) { ++nodes_[node].num_references; }

  // The node has one holder less.
  void Release(NodeId node);

  int length(NodeId node) const { return nodes_[node].length; }
  const TokenLogprob& last(NodeId node) const { return nodes_[node].token; }  // REQUIRES: `node` is not the root.

  // The tokens of the list of `node`, without the first `skip` ones.
  std::vector<TokenLogprob> Tokens(NodeId node, int skip) const;

  // The nodes that have holders or children, without the root, parents before their children. The index of a node in
  // the result is stored in `places` under its id; the others and the root have -1 there.
  struct SavedNode {
    int parent;  // An index, or -1 for the root.
    TokenLogprob token;
  };
  std::vector<SavedNode> Save(std::vector<int>* places) const;
  // Makes the tree of these nodes. Node i gets the id i + 1, and nobody holds it yet.
  static TokenTree Load(const std::vector<SavedNode>& nodes);

  // The node where the held lists part: the end of the longest beginning that all of them share. REQUIRES: `held` is
  // one of the held lists, and all of them begin with the list of `shared`.
  NodeId CommonBeginning(NodeId held, NodeId shared) const;

 private:
  struct Node {
    NodeId parent;
    TokenLogprob token;
    int length;
    int num_references;  // The number of holders and children.
  };

  std::vector<Node> nodes_ = {{kRoot, {0, 0}, 0, 0}};
  std::vector<NodeId> free_;
  std::vector<NodeId> added_;  // Nodes that were added in this step.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_TOKEN_TREE_H_
