// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/stop_string_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

StopStringMatcher::StopStringMatcher(std::vector<std::string> stops) : matched_(stops.size()) {
  auto automata = std::make_shared<std::vector<Automaton>>();
  automata->reserve(stops.size());
  for (std::string& stop : stops) {
    QUIRE_CHECK(!stop.empty());
    Automaton automaton{std::move(stop), {0, 0}};
    for (size_t i = 1; i < automaton.stop.size(); ++i) {
      size_t border = automaton.borders[i];
      while (border > 0 && automaton.stop[border] != automaton.stop[i]) border = automaton.borders[border];
      automaton.borders.push_back(automaton.stop[border] == automaton.stop[i] ? border + 1 : 0);
    }
    automata->push_back(std::move(automaton));
  }
  automata_ = std::move(automata);
}

size_t StopStringMatcher::Automaton::Read(char byte, size_t matched) const {
  while (matched > 0 && stop[matched] != byte) matched = borders[matched];
  return stop[matched] == byte ? matched + 1 : matched;
}

std::optional<int> StopStringMatcher::Append(std::string_view text, bool may_match, std::string* shown) {
  for (const char byte : text) {
    held_back_.push_back(byte);
    const std::optional<Match> match = ReadByte(byte, /*is_hidden=*/false);
    if (match.has_value() && may_match) return Cut(*match, shown);
  }
  Release(shown);
  return std::nullopt;
}

std::optional<int> StopStringMatcher::AppendHidden(std::string_view text, bool may_match, std::string* shown) {
  size_t longest = 0;
  for (const Automaton& automaton : *automata_) longest = std::max(longest, automaton.stop.size());
  std::erase_if(hidden_, [&](const Hidden& hidden) { return hidden.end + longest <= num_generated_; });
  hidden_.push_back({.begin = num_generated_, .end = num_generated_});
  for (const char byte : text) {
    ++hidden_.back().end;
    const std::optional<Match> match = ReadByte(byte, /*is_hidden=*/true);
    if (match.has_value() && may_match) return Cut(*match, shown);
  }
  Release(shown);
  return std::nullopt;
}

std::optional<StopStringMatcher::Match> StopStringMatcher::ReadByte(char byte, bool is_hidden) {
  ++num_generated_;
  std::optional<Match> first;
  for (size_t a = 0; a < matched_.size(); ++a) {
    const Automaton& automaton = (*automata_)[a];
    const size_t size = automaton.stop.size();
    const auto offer = [&](size_t* matched, size_t num_shown) {
      *matched = automaton.borders[size];
      if (!first.has_value() || stop(first->index).size() < size) first = {static_cast<int>(a), num_shown};
    };
    Matched& matched = matched_[a];
    if (!is_hidden) matched.shown = automaton.Read(byte, matched.shown);
    if (matched.shown == size) offer(&matched.shown, size);
    matched.generated = automaton.Read(byte, matched.generated);
    if (matched.generated == size) offer(&matched.generated, NumShown(size));
  }
  return first;
}

int StopStringMatcher::Cut(const Match& match, std::string* shown) {
  shown->append(held_back_, 0, held_back_.size() - match.num_shown);
  held_back_.clear();
  return match.index;
}

void StopStringMatcher::Release(std::string* shown) {
  size_t num_held_back = 0;
  for (const Matched& matched : matched_) {
    num_held_back = std::max({num_held_back, matched.shown, NumShown(matched.generated)});
  }
  const size_t num_released = held_back_.size() - num_held_back;
  shown->append(held_back_, 0, num_released);
  held_back_.erase(0, num_released);
}

size_t StopStringMatcher::NumShown(size_t size) const {
  const size_t begin = num_generated_ - size;
  for (const Hidden& hidden : hidden_) {
    if (hidden.end > begin) size -= hidden.end - std::max(hidden.begin, begin);
  }
  return size;
}

}  // namespace quire
