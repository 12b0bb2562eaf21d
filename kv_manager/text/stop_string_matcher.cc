// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/stop_string_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

StopStringMatcher::StopStringMatcher(std::vector<std::string> stops) : matched_(stops.size(), 0) {
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
  for (size_t i = 0; i < text.size(); ++i) {
    std::optional<int> match;
    for (size_t a = 0; a < matched_.size(); ++a) {
      const Automaton& automaton = (*automata_)[a];
      matched_[a] = automaton.Read(text[i], matched_[a]);
      if (matched_[a] < automaton.stop.size()) continue;
      matched_[a] = automaton.borders[matched_[a]];
      if (!match.has_value() || stop(*match).size() < automaton.stop.size()) match = static_cast<int>(a);
    }
    if (match.has_value() && may_match) {
      held_back_.append(text.substr(0, i + 1));
      shown->append(held_back_, 0, held_back_.size() - stop(*match).size());
      held_back_.clear();
      return match;
    }
  }

  size_t num_held_back = 0;
  for (const size_t matched : matched_) num_held_back = std::max(num_held_back, matched);
  held_back_.append(text);
  const size_t num_shown = held_back_.size() - num_held_back;
  shown->append(held_back_, 0, num_shown);
  held_back_.erase(0, num_shown);
  return std::nullopt;
}

}  // namespace quire
