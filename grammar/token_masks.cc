// SPDX-License-Identifier: Apache-2.0

#include "grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "grammar/equal_states.h"

namespace quire::grammar {
namespace {

constexpr int kNoDepthLimit = std::numeric_limits<int>::max();
// Numbers of contents and serial numbers of automata are numbers of groups; this bit tells them apart.
constexpr uint64_t kContentBit = uint64_t{1} << 63;
// What it takes to look at all bytes of a state.
constexpr int64_t kStateWork = 50;

void SetBit(TokenId token, absl::Span<uint32_t> mask) {
  mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
}

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const TokenTable> tokens, size_t max_bytes)
    : tokens_(std::move(tokens)), max_bytes_(max_bytes) {
  const size_t num_levels = static_cast<size_t>(tokens_->trie().max_depth()) + 1;
  levels_.resize(num_levels);
  sizes_.resize(num_levels);
  states_.resize(num_levels);
}

bool TokenMasks::Fill(const Matcher& matcher, absl::Span<uint32_t> mask, int64_t* work) {
  const std::shared_ptr<const Automaton>& automaton = matcher.automaton();
  const std::vector<Position>& positions = matcher.set().positions;
  std::fill(mask.begin(), mask.end(), 0);
  *work -= static_cast<int64_t>(mask.size()) / 16 + 1;
  LimitMemory();
  ++num_uses_;
  seen_.clear();
  std::vector<std::pair<const ByteTrie*, FrameId>> leaving;
  for (const Position& position : positions) {
    const StateMask* known = MaskOf(automaton, position.state, work);
    if (known == nullptr) return false;
    if (position.frame >= 0 && known->leaving.num_nodes() > 0) leaving.emplace_back(&known->leaving, position.frame);
    // Several positions may have one state.
    if (--*work < 0 || (positions.size() > 1 && !seen_.insert({position.state, kUnknown}).second)) continue;
    *work -= static_cast<int64_t>(known->bits.size() / 16 + known->allowed.size());
    for (size_t i = 0; i < known->bits.size(); ++i) mask[i] |= known->bits[i];
    for (const TokenId token : known->allowed) SetBit(token, mask);
  }
  if (!leaving.empty()) {
    *work -= static_cast<int64_t>(matcher.frames().links.size());
    frames_ = matcher.frames();
  }
  work_ = *work;
  std::sort(leaving.begin(), leaving.end());
  for (size_t i = 0; i < leaving.size() && work_ >= 0;) {
    const ByteTrie* const trie = leaving[i].first;
    frame_ids_.clear();
    for (; i < leaving.size() && leaving[i].first == trie; ++i) frame_ids_.push_back(leaving[i].second);
    if (!HasAll(*trie, mask)) FillLeaving(*automaton, *trie, mask);
  }
  *work = work_;
  if (matcher.can_end()) {
    for (const TokenId token : tokens_->end_tokens()) SetBit(token, mask);
  }
  return *work >= 0;
}

void TokenMasks::SetEqualStates(const std::shared_ptr<const Automaton>& automaton,
                                std::vector<std::vector<StateId>> equal_states) {
  KnownOf(automaton).equal_states = std::move(equal_states);
}

// A mask for which the work of this call is too little is started again in the next call.
bool TokenMasks::Prepare(const std::shared_ptr<const Automaton>& automaton, int64_t max_work,
                         Preparation* preparation) {
  LimitMemory();
  int64_t work = std::min(max_work, preparation->work);
  preparation->work -= work;
  for (StateId& state = preparation->next_state; state < automaton->num_states(); ++state) {
    // One mask more must not be the one for which Fill forgets some of them.
    if (num_bytes_ + 8 * num_words() > max_bytes_ - max_bytes_ / 16) return false;
    work -= kStateWork;
    if (work < 0) return preparation->work > 0;
    if (FirstEqual(*automaton, state, &KnownOf(automaton), &work) != state) continue;
    runs_.SetAutomaton(*automaton);
    const bool is_wide = runs_.IsWide(state);
    work -= runs_.TakeWork();
    if (is_wide && MaskOf(automaton, state, &work) == nullptr) return preparation->work > 0;
  }
  return false;
}

void TokenMasks::LimitMemory() {
  if (num_bytes_ <= max_bytes_) return;
  std::vector<std::pair<double, GroupId>> order;
  for (const auto& [id, group] : groups_) {
    const double age = static_cast<double>(num_uses_ - group.last_use) + 1;
    order.emplace_back(static_cast<double>(group.num_bytes) * age, id);
  }
  std::sort(order.begin(), order.end(), std::greater<>());
  for (size_t i = 0; i < order.size() && num_bytes_ > max_bytes_ / 4 * 3; ++i) Forget(order[i].second);
}

void TokenMasks::Forget(GroupId id) {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return;
  num_bytes_ -= group->second.num_bytes;
  contents_.erase(group->second.content);
  groups_.erase(group);
}

bool TokenMasks::HasAll(const ByteTrie& trie, absl::Span<const uint32_t> mask) {
  for (int place = 0; place < trie.num_tokens(); ++place) {
    --work_;
    const auto token = static_cast<size_t>(trie.token(place));
    if ((mask[token / 32] >> (token % 32) & 1) == 0) return false;
  }
  return true;
}

void TokenMasks::FillLeaving(const Automaton& automaton, const ByteTrie& leaving, absl::Span<uint32_t> mask) {
  const Frames::Size size = frames_.size();
  levels_[0].positions.clear();
  seen_.clear();
  for (const FrameId frame : frame_ids_) {
    for (int32_t link = frames_.at(frame).first_link; link >= 0; link = frames_.link(link).other) {
      --work_;
      const Position next = frames_.link(link).next;
      if (seen_.insert(next).second) levels_[0].positions.push_back(next);
    }
  }
  Close(automaton, kNoDepthLimit, &frames_, &levels_[0], &work_);
  sizes_[0] = frames_.size();
  leaving.Walk([&](int i, size_t depth) {
    if (--work_ < 0) return false;
    frames_.Shrink(sizes_[depth - 1]);
    PositionSet& level = levels_[depth];
    Step(automaton, levels_[depth - 1], leaving.node(i).byte, &level, &work_);
    if (level.positions.empty()) return false;
    for (const TokenId token : leaving.tokens(i)) SetBit(token, mask);
    if (leaving.node(i).num_children == 0) return false;
    Close(automaton, kNoDepthLimit, &frames_, &level, &work_);
    sizes_[depth] = frames_.size();
    return true;
  });
  frames_.Shrink(size);
}

const TokenMasks::StateMask* TokenMasks::MaskOf(const std::shared_ptr<const Automaton>& automaton, StateId state,
                                                int64_t* work) {
  const RuleId rule = automaton->rule_of(state);
  Known& known = KnownOf(automaton);
  state = FirstEqual(*automaton, state, &known, work);
  const GroupId id = GroupOf(*automaton, rule, &known);
  Group& group = groups_[id];
  group.last_use = num_uses_;
  const StateId key = (id & kContentBit) != 0 ? state - automaton->first_state(rule) : state;
  const auto found = group.masks.find(key);
  if (found != group.masks.end()) return found->second.get();
  work_ = *work;
  std::unique_ptr<StateMask> mask = Build(*automaton, state);
  *work = work_;
  if (work_ < 0) return nullptr;
  group.num_bytes += mask->num_bytes();
  num_bytes_ += mask->num_bytes();
  return group.masks.emplace(key, std::move(mask)).first->second.get();
}

TokenMasks::Known& TokenMasks::KnownOf(const std::shared_ptr<const Automaton>& automaton) {
  const auto known = known_.find(automaton->serial());
  if (known != known_.end()) return known->second;
  ForgetAutomata();
  const auto num_rules = static_cast<size_t>(automaton->num_rules());
  return known_[automaton->serial()] = {automaton, std::vector<GroupId>(num_rules),
                                        std::vector<std::vector<StateId>>(num_rules)};
}

StateId TokenMasks::FirstEqual(const Automaton& automaton, StateId state, Known* known, int64_t* work) {
  const RuleId rule = automaton.rule_of(state);
  if (automaton.num_states(rule) < kManyStates) return state;
  std::vector<StateId>& equal = known->equal_states[static_cast<size_t>(rule)];
  if (equal.empty()) {
    equal = FindEqualStates(automaton, rule, tokens_->trie().max_depth(), work);
  }
  return equal[static_cast<size_t>(state - automaton.first_state(rule))];
}

TokenMasks::GroupId TokenMasks::GroupOf(const Automaton& automaton, RuleId rule, Known* known) {
  GroupId& id = known->groups[static_cast<size_t>(rule)];
  if (id == automaton.serial() || groups_.contains(id)) return id;
  id = automaton.serial();
  const std::string& content = automaton.content(rule);
  if (content.empty()) return id;
  const auto [entry, is_new] = contents_.try_emplace(content, (num_contents_ + 1) | kContentBit);
  id = entry->second;
  if (is_new) {
    ++num_contents_;
    Group& group = groups_[id];
    group.content = content;
    group.num_bytes = 2 * content.size();
    num_bytes_ += group.num_bytes;
  }
  return id;
}

void TokenMasks::ForgetAutomata() {
  if (known_.size() < 2 * num_known_after_forgetting_ + 16) return;
  absl::erase_if(known_, [&](const auto& known) {
    const bool is_gone = known.second.automaton.expired();
    if (is_gone) Forget(known.first);
    return is_gone;
  });
  num_known_after_forgetting_ = known_.size();
}

std::unique_ptr<TokenMasks::StateMask> TokenMasks::Build(const Automaton& automaton, StateId state) {
  auto mask = std::make_unique<StateMask>();
  mask->bits.resize(num_words());
  work_ -= static_cast<int64_t>(num_words()) / 4 + kStateWork;
  leaving_.clear();
  runs_.SetAutomaton(automaton);
  if (automaton.is_leaf(automaton.rule_of(state))) {
    WalkLeaf(automaton, state, mask.get());
  } else {
    WalkRule(automaton, state, mask.get());
  }
  if (work_ >= 0) Finish(mask.get());
  return mask;
}

void TokenMasks::WalkLeaf(const Automaton& automaton, StateId state, StateMask* out) {
  const ByteTrie& trie = tokens_->trie();
  const std::bitset<256>& follow = automaton.follow(automaton.rule_of(state));
  const absl::Span<uint32_t> bits = absl::MakeSpan(out->bits);
  states_[0] = state;
  trie.Walk([&](int i, size_t depth) {
    if (--work_ < 0) return false;
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
  frames_.Clear();
  sizes_[0] = {};
  levels_[0].positions = {{state, kUnknown}};
  trie.Walk([&](int i, size_t depth) {
    if (--work_ < 0) return false;
    frames_.Shrink(sizes_[depth - 1]);
    PositionSet& level = levels_[depth];
    Step(automaton, levels_[depth - 1], trie.node(i).byte, &level, &work_);
    if (level.positions.empty()) return false;
    Close(automaton, kNoDepthLimit, &frames_, &level, &work_);
    sizes_[depth] = frames_.size();
    if (level.can_leave) AddLeaving(follow, i, depth);
    return !TakeTokens(i, level.positions.size() == 1 ? level.positions[0].state : kNoState, /*may_end=*/false, bits);
  });
}

bool TokenMasks::TakeTokens(int node, StateId state, bool may_end, absl::Span<uint32_t> bits) {
  const ByteTrie& trie = tokens_->trie();
  const SuffixTable& suffixes = tokens_->suffixes();
  const int fitting = state == kNoState ? -1 : runs_.CharactersThatFit(state, suffixes.of(node), may_end);
  work_ -= runs_.TakeWork();
  if (fitting < 0) {
    for (const TokenId token : trie.tokens(node)) SetBit(token, bits);
    return false;
  }
  const int max_characters = suffixes.characters(node) + fitting;
  work_ -= (trie.node(node).last_token - trie.node(node).first_token) / 8;
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
    work_ -= 8 * (trie.node(child).last_token - trie.node(child).first_token);
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
}

}  // namespace quire::grammar
