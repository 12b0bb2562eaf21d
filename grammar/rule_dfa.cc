// SPDX-License-Identifier: Apache-2.0

#include "grammar/rule_dfa.h"

#include <algorithm>
#include <bitset>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace quire::grammar {
namespace {

using NfaSet = std::vector<int32_t>;  // Sorted.
using Kind = Nfa::State::Kind;

// Splits the bytes into classes which no range of the automaton tells apart. Returns their number.
int ClassesOf(const Nfa& nfa, std::array<uint8_t, 256>* classes) {
  std::bitset<257> begins;
  for (const Nfa::Range& range : nfa.ranges) {
    begins.set(range.first);
    begins.set(size_t{range.last} + 1);
  }
  int current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    (*classes)[byte] = static_cast<uint8_t>(current);
  }
  return current + 1;
}

class SubsetConstruction {
 public:
  SubsetConstruction(const Nfa& nfa, int64_t* work, RuleDfa* out)
      : nfa_(nfa), work_(work), out_(out), state_of_(nfa.states.size(), -1), marks_(nfa.states.size(), 0) {}

  bool Run(bool is_nullable, int max_states) {
    out_->num_classes = ClassesOf(nfa_, &out_->classes);
    targets_.resize(static_cast<size_t>(out_->num_classes));
    // The start of a nullable rule is a state that no text leads back to, so that it need not be final.
    if (is_nullable) AddState(Closed({0}));
    if (!is_nullable) StateOf({0});
    for (size_t i = 0; i < out_->states.size(); ++i) {
      if (*work_ < 0 || static_cast<int>(out_->states.size()) > max_states) return false;
      Expand(i);
    }
    if (is_nullable) out_->states[0].is_final = false;
    return *work_ >= 0;
  }

 private:
  void Expand(size_t index) {
    const NfaSet set = sets_[index];
    for (NfaSet& target : targets_) target.clear();
    calls_.clear();
    bool is_final = false;
    for (const int32_t id : set) {
      const Nfa::State& state = nfa_.states[static_cast<size_t>(id)];
      if (state.kind == Kind::kEnd) is_final = true;
      if (state.kind == Kind::kBytes) FollowRanges(state);
      if (state.kind == Kind::kCall) calls_.emplace_back(state.rule, state.next[0]);
    }
    std::vector<int32_t> next(targets_.size(), -1);
    for (size_t c = 0; c < targets_.size() && *work_ >= 0; ++c) {
      if (c > 0 && targets_[c] == targets_[c - 1]) {
        next[c] = next[c - 1];
      } else if (!targets_[c].empty()) {
        next[c] = StateOf(targets_[c]);
      }
    }
    *work_ -= static_cast<int64_t>(set.size() + targets_.size() + calls_.size());
    std::vector<std::pair<RuleId, int32_t>> calls = FollowCalls();
    RuleDfa::State& state = out_->states[index];
    state.next = std::move(next);
    state.calls = std::move(calls);
    state.is_final = is_final;
  }

  void FollowRanges(const Nfa::State& state) {
    for (int i = 0; i < state.num_ranges; ++i) {
      const Nfa::Range& range = nfa_.ranges[static_cast<size_t>(state.first_range + i)];
      const int first = out_->classes[range.first];
      const int last = out_->classes[range.last];
      for (int c = first; c <= last; ++c) targets_[static_cast<size_t>(c)].push_back(range.next);
      *work_ -= last - first + 1;
    }
  }

  // Calls of the same rule become one.
  std::vector<std::pair<RuleId, int32_t>> FollowCalls() {
    std::sort(calls_.begin(), calls_.end());
    std::vector<std::pair<RuleId, int32_t>> calls;
    for (size_t i = 0; i < calls_.size() && *work_ >= 0;) {
      const RuleId rule = calls_[i].first;
      NfaSet after;
      for (; i < calls_.size() && calls_[i].first == rule; ++i) after.push_back(calls_[i].second);
      calls.emplace_back(rule, StateOf(after));
    }
    return calls;
  }

  // These NFA states and all that are entered together with them.
  NfaSet Closed(NfaSet seeds) {
    ++mark_;
    NfaSet set;
    for (size_t i = 0; i < seeds.size(); ++i) {
      const int32_t id = seeds[i];
      if (marks_[static_cast<size_t>(id)] == mark_) continue;
      marks_[static_cast<size_t>(id)] = mark_;
      const Nfa::State& state = nfa_.states[static_cast<size_t>(id)];
      if (state.kind != Kind::kJump) {
        set.push_back(id);
        continue;
      }
      for (const int32_t next : state.next) {
        if (next >= 0) seeds.push_back(next);
      }
    }
    *work_ -= static_cast<int64_t>(seeds.size());
    std::sort(set.begin(), set.end());
    return set;
  }

  int32_t AddState(NfaSet set) {
    sets_.push_back(std::move(set));
    out_->states.emplace_back();
    return static_cast<int32_t>(sets_.size()) - 1;
  }

  int32_t StateOf(const NfaSet& seeds) {
    --*work_;
    int32_t unused = -1;
    int32_t& known = seeds.size() == 1 ? state_of_[static_cast<size_t>(seeds[0])] : unused;
    if (known >= 0) return known;
    NfaSet set = Closed(seeds);
    const auto [entry, is_new] = index_.try_emplace(std::move(set), static_cast<int32_t>(sets_.size()));
    known = is_new ? AddState(entry->first) : entry->second;
    return known;
  }

  const Nfa& nfa_;
  int64_t* const work_;
  RuleDfa* const out_;
  std::vector<NfaSet> sets_;  // [states]
  absl::flat_hash_map<NfaSet, int32_t> index_;
  std::vector<int32_t> state_of_;  // [NFA states], the state that each enters alone; -1 is not known yet.
  std::vector<uint32_t> marks_;    // [NFA states]
  uint32_t mark_ = 0;

  // Scratch of Expand.
  std::vector<NfaSet> targets_;                    // [num_classes]
  std::vector<std::pair<RuleId, int32_t>> calls_;  // The NFA states behind the calls.
};

}  // namespace

bool MakeRuleDfa(const Nfa& nfa, bool is_nullable, int max_states, int64_t* work, RuleDfa* out) {
  return SubsetConstruction(nfa, work, out).Run(is_nullable, max_states);
}

}  // namespace quire::grammar
