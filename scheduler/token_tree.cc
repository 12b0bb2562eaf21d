// SPDX-License-Identifier: Apache-2.0

#include "scheduler/token_tree.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

TokenTree::NodeId TokenTree::Extend(NodeId parent, TokenLogprob token) {
  for (NodeId added : added_) {
    const Node& node = nodes_[added];
    if (node.num_references == 0 || node.parent != parent || node.token.token != token.token) continue;
    Hold(added);
    return added;
  }
  NodeId id = static_cast<NodeId>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  nodes_[id] = {parent, token, nodes_[parent].length + 1, 1};
  Hold(parent);
  added_.push_back(id);
  return id;
}

void TokenTree::Release(NodeId node) {
  QUIRE_CHECK_GT(nodes_[node].num_references, 0);
  while (--nodes_[node].num_references == 0 && node != kRoot) {
    free_.push_back(node);
    node = nodes_[node].parent;
  }
}

std::vector<TokenLogprob> TokenTree::Tokens(NodeId node, int skip) const {
  std::vector<TokenLogprob> tokens(std::max(length(node) - skip, 0));
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    *token = nodes_[node].token;
    node = nodes_[node].parent;
  }
  return tokens;
}

std::vector<TokenTree::SavedNode> TokenTree::Save(std::vector<int>* places) const {
  std::vector<NodeId> order;
  for (NodeId id = kRoot + 1; id < static_cast<NodeId>(nodes_.size()); ++id) {
    if (nodes_[id].num_references > 0) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [this](NodeId a, NodeId b) { return length(a) < length(b); });
  places->assign(nodes_.size(), -1);
  std::vector<SavedNode> saved;
  saved.reserve(order.size());
  for (const NodeId id : order) {
    (*places)[id] = static_cast<int>(saved.size());
    saved.push_back({(*places)[nodes_[id].parent], nodes_[id].token});
  }
  return saved;
}

TokenTree TokenTree::Load(const std::vector<SavedNode>& nodes) {
  TokenTree tree;
  tree.nodes_.reserve(nodes.size() + 1);
  for (const SavedNode& node : nodes) {
    const NodeId parent = node.parent + 1;
    tree.nodes_.push_back({parent, node.token, tree.nodes_[parent].length + 1, 0});
    tree.Hold(parent);
  }
  return tree;
}

TokenTree::NodeId TokenTree::CommonBeginning(NodeId held, NodeId shared) const {
  NodeId common = held;
  for (NodeId node = held; node != shared; node = nodes_[node].parent)
    if (nodes_[node].num_references > 1) common = node;
  return nodes_[shared].num_references > 1 ? shared : common;
}

}  // namespace quire
