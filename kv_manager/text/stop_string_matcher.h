// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TEXT_STOP_STRING_MATCHER_H_
#define QUIRE_KV_MANAGER_TEXT_STOP_STRING_MATCHER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Looks for the first of several stop strings in a text that arrives in pieces, and tells how much of the text can be
// shown. A part of a stop string that may still be completed is held back. The result does not depend on where the text
// is cut. The first match is the one that ends earliest; among matches with the same end it is the longest.
//
//   stops {"END"}: Append("the E") shows "the ", Append("asy E") shows "Easy ", Append("ND!") matches
//
// If the stop strings and the text are UTF-8, code points are never split, because the text that is held back begins
// where a stop string begins. Copies share the stop strings.
class StopStringMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopStringMatcher(std::vector<std::string> stops);

  // Reads more text and appends the part that can be shown now to `shown`. On a match, `shown` gets the text before the
  // stop string, nothing is held back any more, and the function returns the index of the stop string; then it must not
  // be called again. While `may_match` is false, completed stop strings are ordinary text.
  std::optional<int> Append(std::string_view text, bool may_match, std::string* shown);

  // The text that is held back. It is shown when the text ends without a match.
  std::string_view held_back() const { return held_back_; }

  const std::string& stop(int index) const { return (*automata_)[index].stop; }

 private:
  // The automaton of Knuth, Morris and Pratt (1977). It reads a text byte by byte and knows how long a prefix of `stop`
  // the text ends with.
  struct Automaton {
    std::string stop;
    std::vector<size_t> borders;  // [stop size + 1]; longest proper prefix that is a suffix of the first i bytes.

    // The length of that prefix after one more byte. REQUIRES: matched < stop.size().
    size_t Read(char byte, size_t matched) const;
  };

  std::shared_ptr<const std::vector<Automaton>> automata_;
  std::vector<size_t> matched_;  // Each automaton has the longest prefix of `stop` that the text ends with.
  std::string held_back_;        // The longest end of the text that begins a stop string.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_STOP_STRING_MATCHER_H_
