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
// Some of the generated text may be hidden, such as the name of a special token. A stop string matches in the text that
// is shown, and also in the generated text with its hidden parts:
//
//   stops {"a</s>", "bc"}: Append("a") shows "", AppendHidden("</s>") matches
//                          Append("b") shows "", AppendHidden("</s>") shows "", Append("c") matches
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

  // Reads generated text that is never shown, otherwise as Append does.
  std::optional<int> AppendHidden(std::string_view text, bool may_match, std::string* shown);

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

  // The longest prefix of a stop string that the shown text ends with, and the one that the generated text ends with.
  struct Matched {
    size_t shown = 0;
    size_t generated = 0;
  };

  struct Match {
    int index = 0;
    size_t num_shown = 0;  // Bytes of the shown text that belong to the match.
  };

  // A part of the generated text that is hidden, in bytes from the beginning.
  struct Hidden {
    size_t begin = 0;
    size_t end = 0;
  };

  std::optional<Match> ReadByte(char byte, bool is_hidden);
  // Ends the text at a match, and returns the index of the stop string.
  int Cut(const Match& match, std::string* shown);
  // Shows what begins no stop string any more.
  void Release(std::string* shown);
  // The number of shown bytes among the last `size` bytes of the generated text.
  size_t NumShown(size_t size) const;

  std::shared_ptr<const std::vector<Automaton>> automata_;
  std::vector<Matched> matched_;  // One for each automaton.
  size_t num_generated_ = 0;      // Bytes read, shown and hidden.
  std::vector<Hidden> hidden_;    // The parts that a match may still have.
  std::string held_back_;         // The longest end of the shown text that belongs to a begun stop string.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_STOP_STRING_MATCHER_H_
