// SPDX-License-Identifier: Apache-2.0

#include "grammar/token_masks.h"

#include <algorithm>
#include <bit>
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

void TokenMasks::Prepare(const Automaton& automaton) {
  LimitMemory();
  runs_.SetAutomaton(automaton);
  num_visited_ = 0;
  for (StateId state = 0; state < automaton.num_states(); ++state) {
    // One mask more must not be the one for which Fill forgets all of them.
    if (num_visited_ > kMaxPreparedNodes || num_bytes_ + 8 * num_words() > max_bytes_ - max_bytes_ / 16) return;
    if (runs_.IsWide(state)) MaskOf(automaton, state);
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
  leaving.Walk([&](int i, size_t depth) {
    frames_.resize(num_frames_[depth - 1]);
    PositionSet& level = levels_[depth];
    Step(automaton, levels_[depth - 1], leaving.node(i).byte, &level);
    if (level.positions.empty()) return false;
    for (const TokenId token : leaving.tokens(i)) SetBit(token, mask);
    if (leaving.node(i).num_children == 0) return false;
    Close(automaton, kNoDepthLimit, &frames_, &level);
    num_frames_[depth] = frames_.size();
    return true;
  });
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
  mask->bits.resize(num_words());
  leaving_.clear();
  runs_.SetAutomaton(automaton);
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
  const absl::Span<uint32_t> bits = absl::MakeSpan(out->bits);
  states_[0] = state;
  trie.Walk([&](int i, size_t depth) {
    const StateId next = automaton.Next(states_[depth - 1], trie.node(i).byte);
    if (next == kNoState) return false;
    states_[depth] = next;
    if (automaton.is_final(next)) AddLeaving(follow, i, depth);
    return !TakeTokens(i, next, /*may_end=*/follow.none(), bits);
  });
}

void TokenMasks::WalkRule(const Automaton& automaton, StateId state, StateMask* out) {
  const ByteTrie& trie = tokens_->trie();
  const std::bitset<256>& follow = automaton.follow(automaton.rule_of(state));
  const absl::Span<uint32_t> bits = absl::MakeSpan(out->bits);
  frames_.clear();
  num_frames_[0] = 0;
  levels_[0].positions = {{state, kUnknown}};
  trie.Walk([&](int i, size_t depth) {
    frames_.resize(num_frames_[depth - 1]);
    PositionSet& level = levels_[depth];
    Step(automaton, levels_[depth - 1], trie.node(i).byte, &level);
    if (level.positions.empty()) return false;
    Close(automaton, kNoDepthLimit, &frames_, &level);
    num_frames_[depth] = frames_.size();
    if (level.can_leave) AddLeaving(follow, i, depth);
    return !TakeTokens(i, level.positions.size() == 1 ? level.positions[0].state : kNoState, /*may_end=*/false, bits);
  });
}

bool TokenMasks::TakeTokens(int node, StateId state, bool may_end, absl::Span<uint32_t> bits) {
  const ByteTrie& trie = tokens_->trie();
  const SuffixTable& suffixes = tokens_->suffixes();
  ++num_visited_;
  const int fitting = state == kNoState ? -1 : runs_.CharactersThatFit(state, suffixes.of(node), may_end);
  if (fitting < 0) {
    for (const TokenId token : trie.tokens(node)) SetBit(token, bits);
    return false;
  }
  const int max_characters = suffixes.characters(node) + fitting;
  for (int place = trie.node(node).first_token; place < trie.node(node).last_token; ++place) {
    if (suffixes.token_characters(place) <= max_characters) SetBit(trie.token(place), bits);
  }
  return true;
}

void TokenMasks::AddLeaving(const std::bitset<256>& follow, int node, size_t depth) {
  const ByteTrie& trie = tokens_->trie();
  const ByteTrie::Node& ended = trie.node(node);
  for (int child = ended.first_child; child < ended.first_child + ended.num_children; ++child) {
    if (!follow[trie.node(child).byte]) continue;
    for (int place = trie.node(child).first_token; place < trie.node(child).last_token; ++place) {
      const TokenId token = trie.token(place);
      leaving_.emplace_back(tokens_->bytes(token).substr(depth), token);
    }
  }
}

// A short list of tokens is kept as a list. A token that is allowed anyway need not be looked at again.
void TokenMasks::Finish(StateMask* out) {
  const auto is_allowed = [&](TokenId token) {
    return (out->bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  std::erase_if(leaving_, [&](const auto& leaving) { return is_allowed(leaving.second); });
  out->leaving = ByteTrie(std::move(leaving_));
  size_t count = 0;
  for (const uint32_t word : out->bits) count += static_cast<size_t>(std::popcount(word));
  if (count <= num_words()) {
    out->allowed.reserve(count);
    for (size_t i = 0; i < out->bits.size(); ++i) {
      for (uint32_t word = out->bits[i]; word != 0; word &= word - 1) {
        out->allowed.push_back(static_cast<TokenId>(i * 32) + std::countr_zero(word));
      }
    }
    out->bits = {};
  }
  num_bytes_ += sizeof(StateMask) + (out->bits.size() + out->allowed.size()) * 4 + out->leaving.num_bytes();
}

}  // namespace quire::grammar
