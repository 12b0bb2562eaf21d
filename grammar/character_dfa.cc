// SPDX-License-Identifier: Apache-2.0

#include "grammar/character_dfa.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/character_nfa.h"

namespace quire::grammar {
namespace {

absl::Status TooLarge() {
  return absl::InvalidArgumentError(absl::StrCat("together they need more than ", kMaxCharacterStates,
                                                 " states, or more than ", kMaxCharacterSteps,
                                                 " steps of compilation"));
}

// What stands on one side of a place in a text.
enum class Side { kNothing, kWord, kOther };

const CodePointSet& AsciiWordCharacters() {
  static const auto* set = new CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return *set;
}

bool Holds(Assertion assertion, Side before, Side after) {
  const bool is_boundary = (before == Side::kWord) != (after == Side::kWord);
  switch (assertion) {
    case Assertion::kBegin:
      return before == Side::kNothing;
    case Assertion::kEnd:
      return after == Side::kNothing;
    case Assertion::kBoundary:
      return is_boundary;
    case Assertion::kNoBoundary:
      return !is_boundary;
  }
  return false;
}

}  // namespace

// Turns a CharacterNfa into a CharacterDfa by the construction of subsets.
class SubsetBuilder {
 public:
  SubsetBuilder(const CharacterNfa& nfa, int64_t* steps) : nfa_(nfa), steps_(*steps), marks_(nfa.states.size(), 0) {}

  absl::StatusOr<CharacterDfa> Run() {
    StateOf({{0}, nfa_.has_assertions ? Side::kNothing : Side::kOther});
    for (size_t i = 0; i < dfa_.states_.size(); ++i) {
      if (static_cast<int>(i) >= kMaxCharacterStates) return TooLarge();
      Expand(i);
      if (steps_ < 0) return TooLarge();
    }
    return std::move(dfa_);
  }

 private:
  struct Key {
    std::vector<int> set;  // Sorted NFA states.
    Side before;

    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.set, key.before);
    }
  };
  using Steps = std::vector<std::pair<CodePointRange, int>>;

  int StateOf(Key key) {
    const auto [entry, is_new] = index_.try_emplace(std::move(key), static_cast<int>(keys_.size()));
    if (is_new) {
      keys_.push_back(entry->first);
      dfa_.states_.emplace_back();
    }
    return entry->second;
  }

  // The states that are entered together with the states of a set, where `after` comes next.
  std::vector<int> Closure(const Key& key, Side after) {
    ++mark_;
    std::vector<int> states;
    const auto add = [&](int state) {
      if (marks_[static_cast<size_t>(state)] == mark_) return;
      marks_[static_cast<size_t>(state)] = mark_;
      states.push_back(state);
    };
    for (const int state : key.set) add(state);
    for (size_t i = 0; i < states.size(); ++i) {
      for (const CharacterNfa::Jump& jump : nfa_.states[static_cast<size_t>(states[i])].jumps) {
        if (!jump.assertion.has_value() || Holds(*jump.assertion, key.before, after)) add(jump.to);
      }
    }
    steps_ -= static_cast<int64_t>(states.size());
    return states;
  }

  void Expand(size_t index) {
    const Key key = keys_[index];
    const int last = static_cast<int>(nfa_.states.size()) - 1;
    const std::vector<int> at_end = Closure(key, Side::kNothing);
    dfa_.states_[index].is_final = std::find(at_end.begin(), at_end.end(), last) != at_end.end();
    if (!nfa_.has_assertions) return AddEdges(index, StepsOf(at_end), Side::kOther);
    AddEdges(index, Within(StepsOf(Closure(key, Side::kWord)), AsciiWordCharacters()), Side::kWord);
    AddEdges(index, Within(StepsOf(Closure(key, Side::kOther)), AsciiWordCharacters().Complement()), Side::kOther);
    auto& edges = dfa_.states_[index].edges;
    std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.range.first < b.range.first; });
  }

  Steps StepsOf(const std::vector<int>& states) const {
    Steps steps;
    for (const int state : states) {
      const auto& more = nfa_.states[static_cast<size_t>(state)].steps;
      steps.insert(steps.end(), more.begin(), more.end());
    }
    return steps;
  }
  static Steps Within(const Steps& steps, const CodePointSet& set) {
    Steps within;
    for (const auto& [range, to] : steps) {
      const CodePointSet parts = CodePointSet({range}).Intersection(set);
      for (const CodePointRange& part : parts.ranges()) within.push_back({part, to});
    }
    return within;
  }

  // Splits the ranges of the steps into ranges whose characters lead to the same states. Adds nothing when that takes
  // more steps than are left.
  void AddEdges(size_t index, const Steps& steps, Side before) {
    std::vector<uint32_t> begins;
    for (const auto& [range, to] : steps) {
      begins.push_back(range.first);
      begins.push_back(range.last + 1);
    }
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    if (begins.empty()) return;
    steps_ -= static_cast<int64_t>((begins.size() - 1) * steps.size());
    if (steps_ < 0) return;
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      Key key{{}, before};
      for (const auto& [range, to] : steps) {
        if (range.first <= begins[i] && begins[i] <= range.last) key.set.push_back(to);
      }
      if (key.set.empty()) continue;
      std::sort(key.set.begin(), key.set.end());
      key.set.erase(std::unique(key.set.begin(), key.set.end()), key.set.end());
      const int to = StateOf(std::move(key));
      dfa_.states_[index].edges.push_back({{begins[i], begins[i + 1] - 1}, to});
    }
  }

  const CharacterNfa& nfa_;
  int64_t& steps_;
  CharacterDfa dfa_;
  std::vector<Key> keys_;  // [states]
  absl::flat_hash_map<Key, int> index_;
  std::vector<uint32_t> marks_;  // [NFA states]
  uint32_t mark_ = 0;
};

absl::StatusOr<CharacterDfa> CharacterDfa::Of(const SyntaxTree& tree, ExprId expr, int64_t* steps) {
  QUIRE_ASSIGN_OR_RETURN(const CharacterNfa nfa, BuildCharacterNfa(tree, expr));
  return SubsetBuilder(nfa, steps).Run();
}

CharacterDfa CharacterDfa::OfLengths(int min, int max) {
  CharacterDfa dfa;
  const int last = max == kUnbounded ? min : max;
  for (int i = 0; i <= last; ++i) {
    State state{.is_final = i >= min};
    if (i < last || max == kUnbounded) state.edges.push_back({{0, kMaxCodePoint}, std::min(i + 1, last)});
    dfa.states_.push_back(std::move(state));
  }
  if (last < min) dfa.states_.assign(1, State{});
  return dfa;
}

CharacterDfa CharacterDfa::OfCharacters(const CodePointSet& characters) {
  CharacterDfa dfa;
  dfa.states_.push_back({.is_final = true});
  for (const CodePointRange& range : characters.ranges()) dfa.states_[0].edges.push_back({range, 0});
  return dfa;
}

CharacterDfa CharacterDfa::Except(const std::vector<std::string>& texts) {
  struct Prefix {
    std::map<uint32_t, int> next;
    bool is_text = false;
  };
  std::vector<Prefix> prefixes(1);
  for (const std::string& text : texts) {
    size_t at = 0;
    for (size_t i = 0; i < text.size();) {
      const auto [entry, is_new] =
          prefixes[at].next.try_emplace(DecodeUtf8(text, &i), static_cast<int>(prefixes.size()));
      at = static_cast<size_t>(entry->second);
      if (is_new) prefixes.emplace_back();
    }
    prefixes[at].is_text = true;
  }
  CharacterDfa listed;
  for (const Prefix& prefix : prefixes) {
    State state{.is_final = prefix.is_text};
    for (const auto& [character, next] : prefix.next) state.edges.push_back({{character, character}, next});
    listed.states_.push_back(std::move(state));
  }
  return listed.Complement();
}

absl::StatusOr<CharacterDfa> CharacterDfa::Intersection(const CharacterDfa& other, int64_t* steps) const {
  CharacterDfa both;
  std::vector<std::pair<int, int>> pairs;
  absl::flat_hash_map<std::pair<int, int>, int> index;
  const auto state_of = [&](int a, int b) {
    const auto [entry, is_new] = index.try_emplace(std::pair(a, b), static_cast<int>(pairs.size()));
    if (is_new) {
      pairs.push_back({a, b});
      both.states_.emplace_back();
    }
    return entry->second;
  };
  state_of(0, 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (static_cast<int>(i) >= kMaxCharacterStates || *steps < 0) return TooLarge();
    const State& a = states_[static_cast<size_t>(pairs[i].first)];
    const State& b = other.states_[static_cast<size_t>(pairs[i].second)];
    std::vector<Edge> edges;
    for (size_t k = 0, n = 0; k < a.edges.size() && n < b.edges.size();) {
      const CodePointRange& mine = a.edges[k].range;
      const CodePointRange& theirs = b.edges[n].range;
      const CodePointRange common{std::max(mine.first, theirs.first), std::min(mine.last, theirs.last)};
      if (common.first <= common.last) edges.push_back({common, state_of(a.edges[k].to, b.edges[n].to)});
      mine.last < theirs.last ? ++k : ++n;
    }
    *steps -= static_cast<int64_t>(a.edges.size() + b.edges.size());
    both.states_[i] = {std::move(edges), a.is_final && b.is_final};
  }
  return both;
}

CharacterDfa CharacterDfa::Complement() const {
  CharacterDfa other = *this;
  const int rest = static_cast<int>(states_.size());
  other.states_.push_back({});
  for (State& state : other.states_) {
    std::vector<CodePointRange> taken;
    for (const Edge& edge : state.edges) taken.push_back(edge.range);
    const CodePointSet others = CodePointSet(std::move(taken)).Complement();
    for (const CodePointRange& range : others.ranges()) {
      state.edges.push_back({range, rest});
    }
    std::sort(state.edges.begin(), state.edges.end(),
              [](const Edge& a, const Edge& b) { return a.range.first < b.range.first; });
    state.is_final = !state.is_final;
  }
  return other;
}

CharacterDfa CharacterDfa::From(int state) const {
  CharacterDfa dfa;
  std::vector<int> reached = {state};
  std::vector<int> index(states_.size(), -1);
  index[static_cast<size_t>(state)] = 0;
  for (size_t i = 0; i < reached.size(); ++i) {
    dfa.states_.push_back(states_[static_cast<size_t>(reached[i])]);
    for (Edge& edge : dfa.states_.back().edges) {
      int& to = index[static_cast<size_t>(edge.to)];
      if (to < 0) {
        to = static_cast<int>(reached.size());
        reached.push_back(edge.to);
      }
      edge.to = to;
    }
  }
  return dfa;
}

std::vector<CharacterDfa::Continuation> CharacterDfa::Continuations() const {
  const std::vector<bool> is_live = LiveStates();
  std::map<int, std::vector<CodePointRange>> characters;
  for (const Edge& edge : states_[0].edges) {
    if (is_live[static_cast<size_t>(edge.to)]) characters[edge.to].push_back(edge.range);
  }
  std::vector<Continuation> continuations;
  for (auto& [to, ranges] : characters) continuations.push_back({CodePointSet(std::move(ranges)), From(to)});
  return continuations;
}

int CharacterDfa::Next(const State& state, uint32_t character) {
  for (const Edge& edge : state.edges) {
    if (edge.range.first <= character && character <= edge.range.last) return edge.to;
  }
  return -1;
}

bool CharacterDfa::Matches(std::string_view text) const {
  int at = 0;
  for (size_t i = 0; i < text.size() && at >= 0;) at = Next(states_[static_cast<size_t>(at)], DecodeUtf8(text, &i));
  return at >= 0 && states_[static_cast<size_t>(at)].is_final;
}

std::vector<bool> CharacterDfa::LiveStates() const {
  std::vector<std::vector<int>> before(states_.size());
  std::vector<bool> is_live(states_.size());
  std::vector<int> waiting;
  for (size_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges) before[static_cast<size_t>(edge.to)].push_back(static_cast<int>(i));
    is_live[i] = states_[i].is_final;
    if (is_live[i]) waiting.push_back(static_cast<int>(i));
  }
  while (!waiting.empty()) {
    const auto state = static_cast<size_t>(waiting.back());
    waiting.pop_back();
    for (const int from : before[state]) {
      if (is_live[static_cast<size_t>(from)]) continue;
      is_live[static_cast<size_t>(from)] = true;
      waiting.push_back(from);
    }
  }
  return is_live;
}

int CharacterDfa::num_ranges() const {
  int count = 0;
  for (const State& state : states_) count += static_cast<int>(state.edges.size());
  return std::max(1, count);
}

bool CharacterDfa::empty() const {
  return !LiveStates()[0];
}

ExprId CharacterDfa::AddTo(RegexText text, SyntaxTree* tree) const {
  const std::vector<bool> is_live = LiveStates();
  const int end = static_cast<int>(states_.size());
  std::vector<Expr::Edge> edges;
  // Sets that many edges have are written once.
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, ExprId> written;
  const auto write = [&](const CodePointSet& set) {
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    for (const CodePointRange& range : set.ranges()) ranges.push_back({range.first, range.last});
    const auto [entry, is_new] = written.try_emplace(std::move(ranges), -1);
    if (is_new) entry->second = Characters(set, text, tree);
    return entry->second;
  };
  for (int i = 0; i < end; ++i) {
    const State& state = states_[static_cast<size_t>(i)];
    std::map<int, std::vector<CodePointRange>> characters;
    for (const Edge& edge : state.edges) {
      if (is_live[static_cast<size_t>(edge.to)]) characters[edge.to].push_back(edge.range);
    }
    for (auto& [to, ranges] : characters) edges.push_back({i, to, write(CodePointSet(std::move(ranges)))});
    if (state.is_final) edges.push_back({i, end, tree->Empty()});
  }
  return tree->Graph(end + 1, std::move(edges));
}

}  // namespace quire::grammar
