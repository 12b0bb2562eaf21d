// SPDX-License-Identifier: Apache-2.0

#include "grammar/automaton.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/nfa.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxContentBytes = 16384;

using NfaSet = std::vector<int32_t>;  // Sorted.

// Splits the bytes into classes which no range of the automaton tells apart. Returns their number.
int ClassesOf(const Nfa& nfa, std::array<uint8_t, 256>* classes) {
  std::bitset<257> begins;
  for (const Nfa::State& state : nfa.states) {
    if (state.kind != Nfa::State::Kind::kBytes) continue;
    begins.set(state.first);
    begins.set(size_t{state.last} + 1);
  }
  int current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    (*classes)[byte] = static_cast<uint8_t>(current);
  }
  return current + 1;
}

// A deterministic automaton of one rule with its own numbers of states.
struct RuleDfa {
  struct State {
    std::vector<int32_t> next;  // [num_classes], -1 is none.
    std::vector<std::pair<RuleId, int32_t>> calls;
    bool is_final = false;
  };

  std::vector<State> states;  // 0 is the start.
  std::array<uint8_t, 256> classes;
  int num_classes = 0;
};

// Turns an Nfa into a RuleDfa by the construction of subsets.
class SubsetConstruction {
 public:
  SubsetConstruction(const Nfa& nfa, RuleDfa* out) : nfa_(nfa), out_(out), marks_(nfa.states.size(), 0) {}

  // Returns false when there would be more than `max_states` states, or when `work` has been used up.
  bool Run(int max_states, int64_t* work) {
    out_->num_classes = ClassesOf(nfa_, &out_->classes);
    std::vector<uint8_t> sample(static_cast<size_t>(out_->num_classes));  // A byte of each class.
    for (int byte = 255; byte >= 0; --byte)
      sample[out_->classes[static_cast<size_t>(byte)]] = static_cast<uint8_t>(byte);
    StateOf({0});
    for (size_t i = 0; i < out_->states.size(); ++i) {
      *work -= static_cast<int64_t>(sets_[i].size()) * 2 + out_->num_classes;
      if (*work < 0 || static_cast<int>(out_->states.size()) > max_states) return false;
      Expand(i, sample);
    }
    return true;
  }

 private:
  using Kind = Nfa::State::Kind;

  void Expand(size_t index, const std::vector<uint8_t>& sample) {
    const NfaSet set = sets_[index];
    std::vector<NfaSet> targets(static_cast<size_t>(out_->num_classes));
    std::vector<std::pair<RuleId, NfaSet>> calls;
    bool is_final = false;
    for (const int32_t id : set) {
      const Nfa::State& state = nfa_.states[static_cast<size_t>(id)];
      if (state.kind == Kind::kEnd) is_final = true;
      if (state.kind == Kind::kBytes) {
        const int last = out_->classes[state.last];
        for (int c = out_->classes[state.first]; c <= last; ++c)
          targets[static_cast<size_t>(c)].push_back(state.next[0]);
      }
      if (state.kind == Kind::kCall) {
        const auto same =
            std::find_if(calls.begin(), calls.end(), [&](const auto& c) { return c.first == state.rule; });
        if (same == calls.end()) {
          calls.push_back({state.rule, {state.next[0]}});
        } else {
          same->second.push_back(state.next[0]);
        }
      }
    }
    std::vector<int32_t> next(static_cast<size_t>(out_->num_classes), -1);
    for (size_t c = 0; c < sample.size(); ++c) {
      if (c > 0 && targets[c] == targets[c - 1]) {
        next[c] = next[c - 1];
      } else if (!targets[c].empty()) {
        next[c] = StateOf(targets[c]);
      }
    }
    std::vector<std::pair<RuleId, int32_t>> called;
    for (auto& [rule, after] : calls) called.push_back({rule, StateOf(std::move(after))});
    RuleDfa::State& state = out_->states[index];
    state.next = std::move(next);
    state.calls = std::move(called);
    state.is_final = is_final;
  }

  // The state for these NFA states and all that are entered together with them.
  int32_t StateOf(NfaSet seeds) {
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
    std::sort(set.begin(), set.end());
    const auto [entry, is_new] = index_.try_emplace(std::move(set), static_cast<int32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(entry->first);
      out_->states.emplace_back();
    }
    return entry->second;
  }

  const Nfa& nfa_;
  RuleDfa* const out_;
  std::vector<NfaSet> sets_;  // [states]
  absl::flat_hash_map<NfaSet, int32_t> index_;
  std::vector<uint32_t> marks_;  // [NFA states]
  uint32_t mark_ = 0;
};

}  // namespace

// Compiles the rules that the root needs, and removes what leads nowhere.
class AutomatonBuilder {
 public:
  explicit AutomatonBuilder(const SyntaxTree& tree) : tree_(tree), dfas_(static_cast<size_t>(tree.num_rules())) {}

  absl::StatusOr<std::shared_ptr<const Automaton>> Run() {
    QUIRE_RETURN_IF_ERROR(BuildRules());
    FindLiveStates();
    if (!IsLive(0, 0)) return NoTextError();
    RemoveDeadStates();
    FindNullableRules();
    QUIRE_RETURN_IF_ERROR(RefuseLeftRecursion());
    auto automaton = std::make_shared<Automaton>();
    Number(automaton.get());
    FindFollow(automaton.get());
    SetContents(automaton.get());
    static std::atomic<uint64_t> next_serial{1};
    automaton->serial_ = next_serial.fetch_add(1);
    return automaton;
  }

 private:
  struct Entry {
    bool is_used = false;
    RuleDfa dfa;
    std::vector<bool> is_live;  // [states]
    std::vector<StateId> ids;   // [states], the numbers in the automaton; kNoState for states that were removed.
    bool is_nullable = false;
  };

  Entry& Of(RuleId rule) { return dfas_[static_cast<size_t>(rule)]; }
  bool IsLive(RuleId rule, int32_t state) { return Of(rule).is_live[static_cast<size_t>(state)]; }

  absl::Status BuildRules() {
    const std::vector<bool> is_inlined = InlinedRules(tree_);
    int64_t work = kMaxSubsetWork;
    int num_nfa_states = kMaxNfaStates;
    int num_states = kMaxStates;
    used_ = {0};
    Of(0).is_used = true;
    for (size_t i = 0; i < used_.size(); ++i) {
      const RuleId rule = used_[i];
      Nfa nfa;
      QUIRE_RETURN_IF_ERROR(BuildNfa(tree_, rule, is_inlined, num_nfa_states, &nfa));
      num_nfa_states -= static_cast<int>(nfa.states.size());
      if (!SubsetConstruction(nfa, &Of(rule).dfa).Run(num_states, &work)) {
        return absl::InvalidArgumentError(absl::StrCat("the grammar is too large at rule \"", tree_.rule(rule).name,
                                                       "\": it needs more than ", kMaxStates, " states, or more than ",
                                                       kMaxSubsetWork, " steps of compilation"));
      }
      num_states -= static_cast<int>(Of(rule).dfa.states.size());
      for (const RuleDfa::State& state : Of(rule).dfa.states) {
        for (const auto& [called, next] : state.calls) {
          if (Of(called).is_used) continue;
          Of(called).is_used = true;
          used_.push_back(called);
        }
      }
    }
    return absl::OkStatus();
  }

  // Calls `visit` until it returns false for all states of all rules.
  template <typename Visit>
  void Repeat(Visit visit) {
    for (bool changed = true; changed;) {
      changed = false;
      for (auto rule = used_.rbegin(); rule != used_.rend(); ++rule) {
        for (size_t i = Of(*rule).dfa.states.size(); i-- > 0;) changed |= visit(*rule, static_cast<int32_t>(i));
      }
    }
  }

  // A state is live if some text leads from it to the end of its rule.
  void FindLiveStates() {
    for (const RuleId rule : used_) Of(rule).is_live.assign(Of(rule).dfa.states.size(), false);
    Repeat([&](RuleId rule, int32_t index) {
      if (IsLive(rule, index)) return false;
      const RuleDfa::State& state = Of(rule).dfa.states[static_cast<size_t>(index)];
      bool is_live = state.is_final;
      for (const int32_t next : state.next) is_live |= next >= 0 && IsLive(rule, next);
      for (const auto& [called, next] : state.calls) is_live |= IsLive(called, 0) && IsLive(rule, next);
      if (is_live) Of(rule).is_live[static_cast<size_t>(index)] = true;
      return is_live;
    });
  }

  // Names a rule without a text that needs no other such rule, as far as there is one.
  absl::Status NoTextError() {
    std::vector<bool> is_seen(dfas_.size());
    RuleId rule = 0;
    for (std::optional<RuleId> next = rule; next.has_value(); next = DeadRuleCalledBy(rule, is_seen)) {
      rule = *next;
      is_seen[static_cast<size_t>(rule)] = true;
    }
    if (rule == 0) return absl::InvalidArgumentError("no text matches");
    return absl::InvalidArgumentError(
        absl::StrCat("no text matches, because rule \"", tree_.rule(rule).name, "\" has none"));
  }

  std::optional<RuleId> DeadRuleCalledBy(RuleId rule, const std::vector<bool>& is_seen) {
    for (const RuleDfa::State& state : Of(rule).dfa.states) {
      for (const auto& [called, next] : state.calls) {
        if (!IsLive(called, 0) && !is_seen[static_cast<size_t>(called)]) return called;
      }
    }
    return std::nullopt;
  }

  void RemoveDeadStates() {
    for (const RuleId rule : used_) {
      for (RuleDfa::State& state : Of(rule).dfa.states) {
        for (int32_t& next : state.next) {
          if (next >= 0 && !IsLive(rule, next)) next = -1;
        }
        std::erase_if(state.calls,
                      [&](const auto& call) { return !IsLive(call.first, 0) || !IsLive(rule, call.second); });
      }
    }
  }

  void FindNullableRules() {
    // Each entry says whether the end of the rule can be reached from this state without a byte.
    for (const RuleId rule : used_) ends_.push_back(std::vector<bool>(Of(rule).dfa.states.size(), false));
    for (size_t i = 0; i < used_.size(); ++i) index_of_[used_[i]] = i;
    Repeat([&](RuleId rule, int32_t index) {
      std::vector<bool>& ends = ends_[index_of_[rule]];
      if (ends[static_cast<size_t>(index)]) return false;
      const RuleDfa::State& state = Of(rule).dfa.states[static_cast<size_t>(index)];
      bool ends_here = state.is_final;
      for (const auto& [called, next] : state.calls) {
        ends_here |= Of(called).is_nullable && ends[static_cast<size_t>(next)];
      }
      if (!ends_here) return false;
      ends[static_cast<size_t>(index)] = true;
      if (index == 0) Of(rule).is_nullable = true;
      return true;
    });
  }

  // The rules that can begin a text of `rule`, when nothing was read before.
  std::vector<RuleId> FirstRules(RuleId rule) {
    std::vector<RuleId> rules;
    std::vector<int32_t> states = {0};
    for (size_t i = 0; i < states.size(); ++i) {
      for (const auto& [called, next] : Of(rule).dfa.states[static_cast<size_t>(states[i])].calls) {
        if (std::find(rules.begin(), rules.end(), called) == rules.end()) rules.push_back(called);
        if (Of(called).is_nullable && std::find(states.begin(), states.end(), next) == states.end()) {
          states.push_back(next);
        }
      }
    }
    return rules;
  }

  absl::Status RefuseLeftRecursion() {
    enum : uint8_t { kNew, kUnderWay, kDone };
    std::vector<uint8_t> marks(dfas_.size(), kNew);
    struct Visit {
      RuleId rule;
      std::vector<RuleId> first;
      size_t next = 0;
    };
    std::vector<Visit> path;
    for (const RuleId root : used_) {
      if (marks[static_cast<size_t>(root)] != kNew) continue;
      marks[static_cast<size_t>(root)] = kUnderWay;
      path.push_back({root, FirstRules(root)});
      while (!path.empty()) {
        Visit& top = path.back();
        if (top.next == top.first.size()) {
          marks[static_cast<size_t>(top.rule)] = kDone;
          path.pop_back();
          continue;
        }
        const RuleId rule = top.first[top.next++];
        uint8_t& mark = marks[static_cast<size_t>(rule)];
        if (mark == kUnderWay) {
          return absl::InvalidArgumentError(absl::StrCat(
              "rule \"", tree_.rule(rule).name,
              "\" is left-recursive: it can begin with itself; write it as a repetition, or recursive on the right"));
        }
        if (mark == kNew) {
          mark = kUnderWay;
          path.push_back({rule, FirstRules(rule)});
        }
      }
    }
    return absl::OkStatus();
  }

  // Gives the states that can be reached their numbers.
  void Number(Automaton* out) {
    out->rules_.resize(dfas_.size());
    for (const RuleId rule : used_) {
      Entry& entry = Of(rule);
      std::vector<int32_t> order = {0};
      entry.ids.assign(entry.dfa.states.size(), kNoState);
      const StateId first = static_cast<StateId>(out->states_.size());
      const auto visit = [&](int32_t state) {
        if (state < 0 || entry.ids[static_cast<size_t>(state)] != kNoState) return;
        entry.ids[static_cast<size_t>(state)] = first + static_cast<StateId>(order.size());
        order.push_back(state);
      };
      entry.ids[0] = first;
      for (size_t i = 0; i < order.size(); ++i) {
        const RuleDfa::State& state = entry.dfa.states[static_cast<size_t>(order[i])];
        for (const int32_t next : state.next) visit(next);
        for (const auto& [called, next] : state.calls) visit(next);
      }
      Automaton::RuleStates& states = out->rules_[static_cast<size_t>(rule)];
      states.start = states.first_state = first;
      states.num_states = static_cast<int>(order.size());
      for (const int32_t index : order) AddState(rule, index, out);
      out->classes_.push_back(entry.dfa.classes);
    }
  }

  void AddState(RuleId rule, int32_t index, Automaton* out) {
    const Entry& entry = Of(rule);
    const RuleDfa::State& from = entry.dfa.states[static_cast<size_t>(index)];
    Automaton::State state;
    state.row = static_cast<uint32_t>(out->table_.size());
    state.classes = static_cast<uint32_t>(out->classes_.size());
    state.rule = rule;
    state.is_final = from.is_final;
    for (const int32_t next : from.next) {
      out->table_.push_back(next < 0 ? kNoState : entry.ids[static_cast<size_t>(next)]);
      state.has_bytes |= next >= 0;
    }
    std::vector<Automaton::Call> calls;
    for (const auto& [called, next] : from.calls) {
      const RuleDfa::State& after = entry.dfa.states[static_cast<size_t>(next)];
      const bool is_tail = after.is_final && after.calls.empty() &&
                           std::all_of(after.next.begin(), after.next.end(), [](int32_t n) { return n < 0; });
      calls.push_back({called, is_tail ? kNoState : entry.ids[static_cast<size_t>(next)]});
    }
    if (!calls.empty()) out->rules_[static_cast<size_t>(rule)].is_leaf = false;
    out->states_.push_back(state);
    out->calls_.push_back(std::move(calls));
  }

  // The bytes that can come next at each state, by the least solution of the equations.
  void FindFollow(Automaton* out) {
    const size_t num_states = out->states_.size();
    std::vector<std::bitset<256>> first(num_states);
    std::vector<bool> ends(num_states);  // Says whether the end of the rule is reached without a byte.
    for (const RuleId rule : used_) {
      const Entry& entry = Of(rule);
      for (size_t i = 0; i < entry.ids.size(); ++i) {
        if (entry.ids[i] != kNoState) ends[static_cast<size_t>(entry.ids[i])] = ends_[index_of_[rule]][i];
      }
    }
    for (size_t s = 0; s < num_states; ++s) {
      if (!out->states_[s].has_bytes) continue;
      for (size_t byte = 0; byte < 256; ++byte) {
        first[s][byte] = out->Next(static_cast<StateId>(s), static_cast<uint8_t>(byte)) != kNoState;
      }
    }
    Fixpoint([&] {
      bool changed = false;
      for (size_t s = num_states; s-- > 0;) {
        std::bitset<256> sum = first[s];
        for (const Automaton::Call& call : out->calls_[s]) {
          sum |= first[static_cast<size_t>(out->start(call.rule))];
          if (Of(call.rule).is_nullable && call.next != kNoState) sum |= first[static_cast<size_t>(call.next)];
        }
        changed |= sum != first[s];
        first[s] = sum;
      }
      return changed;
    });
    Fixpoint([&] {
      bool changed = false;
      for (size_t s = 0; s < num_states; ++s) {
        const std::bitset<256>& outer = out->follow(out->states_[s].rule);
        for (const Automaton::Call& call : out->calls_[s]) {
          std::bitset<256>& follow = out->rules_[static_cast<size_t>(call.rule)].follow;
          std::bitset<256> sum = follow;
          if (call.next != kNoState) sum |= first[static_cast<size_t>(call.next)];
          if (call.next == kNoState || ends[static_cast<size_t>(call.next)]) sum |= outer;
          changed |= sum != follow;
          follow = sum;
        }
      }
      return changed;
    });
  }

  template <typename Round>
  static void Fixpoint(Round round) {
    while (round()) {
    }
  }

  void SetContents(Automaton* out) {
    for (const RuleId rule : used_) {
      Automaton::RuleStates& states = out->rules_[static_cast<size_t>(rule)];
      const RuleDfa& dfa = Of(rule).dfa;
      const size_t num_cells = static_cast<size_t>(states.num_states) * static_cast<size_t>(dfa.num_classes);
      if (!states.is_leaf || num_cells * sizeof(StateId) > kMaxContentBytes) continue;
      std::string& content = states.content;
      content = states.follow.to_string();
      content.append(reinterpret_cast<const char*>(dfa.classes.data()), dfa.classes.size());
      for (int s = states.first_state; s < states.first_state + states.num_states; ++s) {
        const Automaton::State& state = out->states_[static_cast<size_t>(s)];
        content += state.is_final ? '1' : '0';
        for (int c = 0; c < dfa.num_classes; ++c) {
          const StateId next = out->table_[state.row + static_cast<uint32_t>(c)];
          const StateId local = next == kNoState ? kNoState : next - states.first_state;
          content.append(reinterpret_cast<const char*>(&local), sizeof(local));
        }
      }
    }
  }

  const SyntaxTree& tree_;
  std::vector<Entry> dfas_;   // [rules]
  std::vector<RuleId> used_;  // They are in the order in which they were found.
  absl::flat_hash_map<RuleId, size_t> index_of_;
  std::vector<std::vector<bool>> ends_;  // [used rules][states]
};

absl::StatusOr<std::shared_ptr<const Automaton>> Automaton::Compile(const SyntaxTree& tree) {
  return AutomatonBuilder(tree).Run();
}

size_t Automaton::num_bytes() const {
  size_t bytes = table_.size() * sizeof(StateId) + states_.size() * (sizeof(State) + sizeof(calls_[0]));
  for (const std::vector<Call>& calls : calls_) bytes += calls.size() * sizeof(Call);
  return bytes + classes_.size() * sizeof(classes_[0]) + rules_.size() * sizeof(RuleStates);
}

}  // namespace quire::grammar
