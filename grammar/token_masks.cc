#include "grammar/token_masks.h"

#include <algorithm>
#include <limits>

namespace quire::grammar {
namespace {

constexpr int kNoDepthLimit = std::numeric_limits<int>::max();
// Numbers of contents and serial numbers of automata are the owners of masks; this bit tells them apart.
constexpr uint64_t kContentBit = uint64_t{1} << 63;

void SetBit(TokenId token, absl::Span<uint32_t> mask) {
  mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
}

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const TokenTable> tokens, size_t max_bytes)
    : tokens_(std::move(tokens)), max_bytes_(max_bytes) {
  const size_t num_levels = static_cast<size_t>(tokens_->trie().max_depth()) + 1;
  levels_.resize(num_levels);
  num_frames_.resize(num_levels);
  states_.resize(num_levels);
}

void TokenMasks::Fill(const Matcher& matcher, absl::Span<uint32_t> mask) {
  std::fill(mask.begin(), mask.end(), 0);
  LimitMemory();
  for (const Position& position : matcher.set().positions) {
    const StateMask& known = MaskOf(matcher.automaton(), position.state);
    for (size_t i = 0; i < known.bits.size(); ++i) mask[i] |= known.bits[i];
    for (const TokenId token : known.allowed) SetBit(token, mask);
    if (position.frame >= 0 && known.leaving.num_nodes() > 0) {
      FillLeaving(matcher, position.frame, known.leaving, mask);
    }
  }
  if (matcher.can_end()) {
    for (const TokenId token : tokens_->end_tokens()) SetBit(token, mask);
  }
}

void TokenMasks::LimitMemory() {
  if (num_bytes_ <= max_bytes_) return;
  masks_.clear();
  contents_.clear();
  owners_.clear();
  num_bytes_ = 0;
}

void TokenMasks::FillLeaving(const Matcher& matcher, FrameId frame, const ByteTrie& leaving,
                             absl::Span<uint32_t> mask) {
  const Automaton& automaton = matcher.automaton();
  frames_ = matcher.frames();
  levels_[0].positions = {frames_[static_cast<size_t>(frame)].next};
  Close(automaton, kNoDepthLimit, &frames_, &levels_[0]);
  num_frames_[0] = frames_.size();
  for (int i = 0; i < leaving.num_nodes();) {
    const ByteTrie::Node& node = leaving.node(i);
    const size_t above = node.depth - 1u;
    frames_.resize(num_frames_[above]);
    Step(automaton, levels_[above], node.byte, &levels_[node.depth]);
    if (levels_[node.depth].positions.empty()) {
      i = node.end;
      continue;
    }
    for (const TokenId token : leaving.tokens(i)) SetBit(token, mask);
    ++i;
    if (node.end == i) continue;
    Close(automaton, kNoDepthLimit, &frames_, &levels_[node.depth]);
    num_frames_[node.depth] = frames_.size();
  }
}

const TokenMasks::StateMask& TokenMasks::MaskOf(const Automaton& automaton, StateId state) {
  std::unique_ptr<StateMask>& mask = masks_[KeyOf(automaton, state)];
  if (mask == nullptr) mask = Build(automaton, state);
  return *mask;
}

TokenMasks::Key TokenMasks::KeyOf(const Automaton& automaton, StateId state) {
  const RuleId rule = automaton.rule_of(state);
  const std::string& content = automaton.content(rule);
  if (content.empty()) return {automaton.serial(), state};
  const auto [owner, is_new_rule] = owners_.try_emplace({automaton.serial(), rule}, 0);
  if (is_new_rule) {
    const auto [entry, is_new] = contents_.try_emplace(content, contents_.size() | kContentBit);
    if (is_new) num_bytes_ += content.size();
    owner->second = entry->second;
    num_bytes_ += sizeof(*owner);
  }
  return {owner->second, state - automaton.first_state(rule)};
}

std::unique_ptr<TokenMasks::StateMask> TokenMasks::Build(const Automaton& automaton, StateId state) {
  auto mask = std::make_unique<StateMask>();
  leaving_.clear();
  if (automaton.is_leaf(automaton.rule_of(state))) {
    WalkLeaf(automaton, state, mask.get());
  } else {
    WalkRule(automaton, state, mask.get());
  }
  Finish(mask.get());
  return mask;
}

void TokenMasks::WalkLeaf(const Automaton& automaton, StateId state, StateMask* out) {
  const ByteTrie& trie = tokens_->trie();
  const std::bitset<256>& follow = automaton.follow(automaton.rule_of(state));
  states_[0] = state;
  for (int i = 0; i < trie.num_nodes();) {
    const ByteTrie::Node& node = trie.node(i);
    const StateId next = automaton.Next(states_[node.depth - 1u], node.byte);
    if (next == kNoState) {
      i = node.end;
      continue;
    }
    states_[node.depth] = next;
    const absl::Span<const TokenId> tokens = trie.tokens(i);
    out->allowed.insert(out->allowed.end(), tokens.begin(), tokens.end());
    if (automaton.is_final(next)) AddLeaving(follow, i);
    ++i;
  }
}

void TokenMasks::WalkRule(const Automaton& automaton, StateId state, StateMask* out) {
  const ByteTrie& trie = tokens_->trie();
  const std::bitset<256>& follow = automaton.follow(automaton.rule_of(state));
  frames_.clear();
  num_frames_[0] = 0;
  levels_[0].positions = {{state, kUnknown}};
  for (int i = 0; i < trie.num_nodes();) {
    const ByteTrie::Node& node = trie.node(i);
    const size_t above = node.depth - 1u;
    frames_.resize(num_frames_[above]);
    PositionSet& level = levels_[node.depth];
    Step(automaton, levels_[above], node.byte, &level);
    if (level.positions.empty()) {
      i = node.end;
      continue;
    }
    const absl::Span<const TokenId> tokens = trie.tokens(i);
    out->allowed.insert(out->allowed.end(), tokens.begin(), tokens.end());
    Close(automaton, kNoDepthLimit, &frames_, &level);
    num_frames_[node.depth] = frames_.size();
    if (level.can_leave) AddLeaving(follow, i);
    ++i;
  }
}

void TokenMasks::AddLeaving(const std::bitset<256>& follow, int node) {
  const ByteTrie& trie = tokens_->trie();
  const size_t depth = trie.node(node).depth;
  for (int i = node + 1; i < trie.node(node).end; i = trie.node(i).end) {
    if (!follow[trie.node(i).byte]) continue;
    for (const TokenId token : trie.tokens_below(i)) {
      leaving_.emplace_back(std::string(tokens_->bytes(token).substr(depth)), token);
    }
  }
}

// A short list of tokens is kept as a list. A token that is allowed anyway need not be looked at again.
void TokenMasks::Finish(StateMask* out) {
  out->bits.resize(num_words());
  for (const TokenId token : out->allowed) SetBit(token, absl::MakeSpan(out->bits));
  std::vector<std::pair<std::string_view, TokenId>> texts;
  for (const auto& [text, token] : leaving_) {
    if ((out->bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) texts.emplace_back(text, token);
  }
  out->leaving = ByteTrie(std::move(texts));
  if (out->allowed.size() > num_words()) {
    out->allowed = {};
  } else {
    out->bits = {};
    out->allowed.shrink_to_fit();
  }
  num_bytes_ += sizeof(StateMask) + (out->bits.size() + out->allowed.size()) * 4 + out->leaving.num_bytes();
}

}  // namespace quire::grammar
