#ifndef QUIRE_CLIENT_BLOCK_DRAWING_H_
#define QUIRE_CLIENT_BLOCK_DRAWING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/terminal.h"
#include "quire/v1/inspect.pb.h"

// Blocks as characters: '.' free, 'c' cached and evictable, 'u' used, 's' shared, 'P' pinned; each in a colour of its
// own where the terminal has them. Pure functions.

namespace quire {

// The character of a state, coloured.
std::string DrawState(v1::BlockState state, const Terminal& terminal);

// A line that says what the characters mean.
std::string DrawLegend(const Terminal& terminal);

// So many blocks in this state.
struct StateCount {
  v1::BlockState state;
  uint64_t count;
};

// `width` characters, dealt out to the states by their share of all; one with any blocks has at least a character, as
// far as there are any.
std::string DrawBar(absl::Span<const StateCount> counts, int width, const Terminal& terminal);

// How many blocks are in each state: [number of states], by its number.
std::vector<uint64_t> CountStates(absl::string_view states);

// All blocks, lines of them, each line with the id of its first block: a character for each block or, where that were
// more lines than the terminal has, for each group of so many. Of a group the most frequent state is shown, of equally
// frequent ones the later one.
struct DrawnMap {
  std::string lines;
  int blocks_per_cell = 1;
};
DrawnMap DrawMap(absl::string_view states, const Terminal& terminal);

// "0-3 7 9-10": ids with runs joined; at most `max_parts` parts, then "...".
std::string DrawIds(absl::Span<const uint32_t> ids, int max_parts);

}  // namespace quire

#endif  // QUIRE_CLIENT_BLOCK_DRAWING_H_
