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
// shown: never a part of a stop string that may still be completed. The result does not depend on where the text is
// cut. The first match is the one that ends earliest; of those that end there, the longest.
//
//   stops {"END"}: Append("the E") shows "the ", Append("asy E") shows "Easy ", Append("ND!") matches
//
// With UTF-8 stops and text whole code points stay whole: what is held back begins where a stop string begins.
// Copies share the stop strings.
class StopStringMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopStringMatcher(std::vector<std::string> stops);

  // Reads more text and appends to `shown` what can be shown now. On a match `shown` gets the text before the stop
  // string, nothing is held back any more, and the index of the stop string returns; that was the last call. While
  // `may_match` is false, stop strings that are completed pass as ordinary text.
  std::optional<int> Append(std::string_view text, bool may_match, std::string* shown);

  // What is held back, to be shown when the text ends without a match.
  std::string_view held_back() const { return held_back_; }

  const std::string& stop(int index) const { return (*automata_)[index].stop; }

 private:
  // Knuth, Morris and Pratt (1977): reads a text byte by byte and knows how much of `stop` it ends with.
  struct Automaton {
    std::string stop;
    std::vector<size_t> borders;  // [stop size + 1]; longest proper prefix that is a suffix of the first i bytes.

    // How much of `stop` the text ends with after one more byte. REQUIRES: matched < stop.size().
    size_t Read(char byte, size_t matched) const;
  };

  std::shared_ptr<const std::vector<Automaton>> automata_;
  std::vector<size_t> matched_;  // Of each automaton: bytes of `stop` that the text ends with, as many as possible.
  std::string held_back_;        // End of the text that begins some stop string, as long as possible.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_STOP_STRING_MATCHER_H_
