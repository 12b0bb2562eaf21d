// SPDX-License-Identifier: Apache-2.0

#include "grammar/automaton.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/nfa.h"
#include "grammar/rule_dfa.h"
#include "grammar/shared_parts.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxContentBytes = 16384;

}  // namespace

// Compiles the rules that the root needs, and removes what leads nowhere.
class AutomatonBuilder {
 public:
  AutomatonBuilder(const SyntaxTree& tree, std::string_view owner)
      : tree_(tree), owner_(owner), dfas_(static_cast<size_t>(tree.num_rules())) {}

  absl::StatusOr<std::shared_ptr<const Automaton>> Run() {
    QUIRE_RETURN_IF_ERROR(BuildRules());
    FindLiveStates();
    const bool matches_empty = is_nullable_[0];
    if (!IsLive(0, 0) && !matches_empty) return NoTextError();
    RemoveDeadStates();
    QUIRE_RETURN_IF_ERROR(RefuseLeftRecursion());
    auto automaton = std::make_shared<Automaton>();
    automaton->matches_empty_ = matches_empty;
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
    int32_t first_place = 0;
    std::vector<StateId> ids;  // [states], the numbers in the automaton; kNoState for states that were removed.
    int num_parts = 0;         // States and ranges before it was made deterministic.
  };

  // The states of all rules have numbers, while it is found out which ones are live.
  using Place = int32_t;
  static constexpr Place kNoPlace = -1;
  // `place` is live if the state that has this need is live and `other`, if there is one, is live as well.
  struct Need {
    Place place;
    Place other;
  };

  Entry& Of(RuleId rule) { return dfas_[static_cast<size_t>(rule)]; }
  Place PlaceOf(RuleId rule, int32_t state) { return Of(rule).first_place + state; }
  bool IsLive(RuleId rule, int32_t state) { return is_live_[static_cast<size_t>(PlaceOf(rule, state))]; }

  absl::Status BuildRules() {
    const std::vector<bool> is_inlined = InlinedRules(tree_);
    is_nullable_ = NullableRules(tree_);
    int64_t work = kMaxSubsetWork;
    int num_parts = kMaxNfaSize;
    int num_states = kMaxStates;
    used_ = {0};
    Of(0).is_used = true;
    for (size_t i = 0; i < used_.size(); ++i) {
      const RuleId rule = used_[i];
      Nfa nfa;
      if (!BuildNfa(tree_, rule, is_inlined, is_nullable_, num_parts, &nfa)) {
        Of(rule).num_parts = num_parts;
        return TooLarge(absl::StrCat(kMaxNfaSize, " states before it is compiled"));
      }
      Of(rule).num_parts = static_cast<int>(nfa.states.size() + nfa.ranges.size());
      num_parts -= Of(rule).num_parts;
      if (!MakeRuleDfa(nfa, is_nullable_[static_cast<size_t>(rule)], num_states, &work, &Of(rule).dfa)) {
        return TooLarge(absl::StrCat(kMaxStates, " states, or more than ", kMaxSubsetWork, " steps of compilation"));
      }
      num_states -= static_cast<int>(Of(rule).dfa.states.size());
      CollectCalledRules(rule);
    }
    return absl::OkStatus();
  }

  void CollectCalledRules(RuleId rule) {
    for (const RuleDfa::State& state : Of(rule).dfa.states) {
      for (const auto& [called, next] : state.calls) {
        if (Of(called).is_used) continue;
        Of(called).is_used = true;
        used_.push_back(called);
      }
    }
  }

  // The limits are for all rules together, so the largest rule is the likeliest reason.
  absl::Status TooLarge(const std::string& limit) {
    const RuleId largest = *std::max_element(used_.begin(), used_.end(),
                                             [&](RuleId a, RuleId b) { return Of(a).num_parts < Of(b).num_parts; });
    return absl::InvalidArgumentError(absl::StrCat(
        "the guide is too large: all of its parts together need more than ", limit, "; the largest part is rule \"",
        tree_.rule(largest).name, "\". Its repetitions are too long or too ambiguous, or it is nested too deeply"));
  }

  // A state is live if some text leads from it to the end of its rule.
  void FindLiveStates() {
    int32_t num_places = 0;
    for (const RuleId rule : used_) {
      Of(rule).first_place = num_places;
      num_places += static_cast<int32_t>(Of(rule).dfa.states.size());
    }
    is_live_.assign(static_cast<size_t>(num_places), false);
    needs_.resize(is_live_.size());
    std::vector<Place> found;
    for (const RuleId rule : used_) CollectNeeds(rule, &found);
    for (const Place place : found) is_live_[static_cast<size_t>(place)] = true;
    for (size_t i = 0; i < found.size(); ++i) {
      for (const Need& need : needs_[static_cast<size_t>(found[i])]) {
        if (is_live_[static_cast<size_t>(need.place)]) continue;
        if (need.other != kNoPlace && !is_live_[static_cast<size_t>(need.other)]) continue;
        is_live_[static_cast<size_t>(need.place)] = true;
        found.push_back(need.place);
      }
    }
    needs_.clear();
  }

  // Finds the states that lead to each state, and the final states.
  void CollectNeeds(RuleId rule, std::vector<Place>* final_places) {
    const std::vector<RuleDfa::State>& states = Of(rule).dfa.states;
    const auto add = [this](Place from, Need need) { needs_[static_cast<size_t>(from)].push_back(need); };
    for (size_t i = 0; i < states.size(); ++i) {
      const Place place = PlaceOf(rule, static_cast<int32_t>(i));
      if (states[i].is_final) final_places->push_back(place);
      int32_t last = -1;
      for (const int32_t next : states[i].next) {
        if (next >= 0 && next != last) add(PlaceOf(rule, next), {place, kNoPlace});
        last = next;
      }
      for (const auto& [called, next] : states[i].calls) {
        add(PlaceOf(called, 0), {place, PlaceOf(rule, next)});
        add(PlaceOf(rule, next), {place, PlaceOf(called, 0)});
      }
    }
  }

  // Names a rule without a text that needs no other such rule, as far as there is one.
  absl::Status NoTextError() {
    std::vector<bool> is_seen(dfas_.size());
    RuleId rule = 0;
    for (std::optional<RuleId> next = rule; next.has_value(); next = DeadRuleCalledBy(rule, is_seen)) {
      rule = *next;
      is_seen[static_cast<size_t>(rule)] = true;
    }
    const std::string& demands = tree_.rule(rule).demands;
    return absl::InvalidArgumentError(absl::StrCat(
        "no text matches", rule == 0 ? "" : absl::StrCat(", because rule \"", tree_.rule(rule).name, "\" has none"),
        demands.empty() ? "" : ": ", demands));
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

  // The rules that can begin a text of `rule`.
  std::vector<RuleId> FirstRules(RuleId rule) {
    std::vector<RuleId> rules;
    for (const auto& [called, next] : Of(rule).dfa.states[0].calls) rules.push_back(called);
    return rules;
  }

  // Fills first_order_, too.
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
          first_order_.push_back(top.rule);
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
    state.num_classes = static_cast<uint32_t>(from.next.size());
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

  // The bytes that can come next at each state.
  std::vector<std::bitset<256>> FindFirst(const Automaton& automaton) {
    std::vector<std::bitset<256>> first(static_cast<size_t>(automaton.num_states()));
    for (const RuleId rule : used_) {
      std::vector<std::bitset<256>> bytes(static_cast<size_t>(Of(rule).dfa.num_classes));  // Of each class.
      for (size_t byte = 0; byte < 256; ++byte) bytes[Of(rule).dfa.classes[byte]].set(byte);
      const Automaton::RuleStates& states = automaton.rules_[static_cast<size_t>(rule)];
      for (StateId state = states.first_state; state < states.first_state + states.num_states; ++state) {
        const absl::Span<const StateId> next = automaton.Successors(state);
        for (size_t c = 0; c < next.size(); ++c) {
          if (next[c] != kNoState) first[static_cast<size_t>(state)] |= bytes[c];
        }
      }
    }
    const auto add_called = [&](StateId state) {
      for (const Automaton::Call& call : automaton.calls(state)) {
        first[static_cast<size_t>(state)] |= first[static_cast<size_t>(automaton.start(call.rule))];
      }
    };
    // A rule comes behind those that can begin it.
    for (const RuleId rule : first_order_) add_called(automaton.start(rule));
    for (StateId state = 0; state < automaton.num_states(); ++state) add_called(state);
    return first;
  }

  // The bytes that can come behind each rule.
  void FindFollow(Automaton* out) {
    const std::vector<std::bitset<256>> first = FindFirst(*out);
    std::vector<absl::flat_hash_set<RuleId>> ends(dfas_.size());  // The rules with whose end a rule can end.
    std::vector<RuleId> changed = used_;
    for (StateId state = 0; state < out->num_states(); ++state) {
      const RuleId rule = out->rule_of(state);
      for (const Automaton::Call& call : out->calls(state)) {
        if (call.next != kNoState) FollowOf(call.rule, out) |= first[static_cast<size_t>(call.next)];
        if (call.next == kNoState || out->is_final(call.next)) ends[static_cast<size_t>(rule)].insert(call.rule);
      }
    }
    for (size_t i = 0; i < changed.size(); ++i) {
      const std::bitset<256> outer = out->follow(changed[i]);
      for (const RuleId rule : ends[static_cast<size_t>(changed[i])]) {
        std::bitset<256>& follow = FollowOf(rule, out);
        if ((outer & ~follow).none()) continue;
        follow |= outer;
        changed.push_back(rule);
      }
    }
  }

  static std::bitset<256>& FollowOf(RuleId rule, Automaton* out) {
    return out->rules_[static_cast<size_t>(rule)].follow;
  }

  void SetContents(Automaton* out) {
    for (const RuleId rule : used_) {
      Automaton::RuleStates& states = out->rules_[static_cast<size_t>(rule)];
      const RuleDfa& dfa = Of(rule).dfa;
      const size_t num_cells = static_cast<size_t>(states.num_states) * static_cast<size_t>(dfa.num_classes);
      if (!states.is_leaf || num_cells * sizeof(StateId) > kMaxContentBytes) continue;
      std::string& content = states.content;
      content =
          absl::StrCat(owner_.size(), ",", absl::string_view(owner_.data(), owner_.size()), states.follow.to_string());
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
  const std::string_view owner_;
  std::vector<Entry> dfas_;               // [rules]
  std::vector<RuleId> used_;              // In the order in which they were found.
  std::vector<bool> is_nullable_;         // [rules]
  std::vector<bool> is_live_;             // [places]
  std::vector<std::vector<Need>> needs_;  // [places]
  std::vector<RuleId> first_order_;       // The used rules, each behind those that can begin it.
};

absl::StatusOr<std::shared_ptr<const Automaton>> Automaton::Compile(SyntaxTree tree, std::string_view owner) {
  ShareParts(&tree);
  return AutomatonBuilder(tree, owner).Run();
}

size_t Automaton::num_bytes() const {
  size_t bytes = table_.size() * sizeof(StateId) + states_.size() * (sizeof(State) + sizeof(calls_[0]));
  for (const std::vector<Call>& calls : calls_) bytes += calls.size() * sizeof(Call);
  for (const RuleStates& rule : rules_) bytes += sizeof(RuleStates) + rule.content.size();
  return bytes + classes_.size() * sizeof(classes_[0]);
}

}  // namespace quire::grammar
