#ifndef QUIRE_SCHEDULER_TOKEN_TREE_H_
#define QUIRE_SCHEDULER_TOKEN_TREE_H_

#include <vector>

#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// Token lists that share their beginnings: each is a path down from the root, so that to continue, fork or drop a list
// copies nothing. Nodes are counted; one without holder and child makes room for another. Not thread-safe.
class TokenTree {
 public:
  using NodeId = int;
  static constexpr NodeId kRoot = 0;  // The empty list. Held by nobody at first, and never dropped.

  // The list of `parent` and one token more, with the caller as holder. Equal lists of one step share a node.
  NodeId Extend(NodeId parent, TokenLogprob token);

  // From here on a list equal to an older one is a new node.
  void EndStep() { added_.clear(); }

  // One holder more.
  void Hold(NodeId node) { ++nodes_[node].num_references; }

  // One holder less.
  void Release(NodeId node);

  int length(NodeId node) const { return nodes_[node].length; }
  const TokenLogprob& last(NodeId node) const { return nodes_[node].token; }  // REQUIRES: not the root.

  // The tokens of the list of `node` that follow its first `skip` ones.
  std::vector<TokenLogprob> Tokens(NodeId node, int skip) const;

  // Where the lists held part ways: the end of the longest beginning that all of them share. REQUIRES: `held` is one of
  // them, and all share the list of `shared`.
  NodeId CommonBeginning(NodeId held, NodeId shared) const;

 private:
  struct Node {
    NodeId parent;
    TokenLogprob token;
    int length;
    int num_references;  // Holders and children.
  };

  std::vector<Node> nodes_ = {{kRoot, {0, 0}, 0, 0}};
  std::vector<NodeId> free_;
  std::vector<NodeId> added_;  // In this step.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_TOKEN_TREE_H_
