// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_BLOCK_DRAWING_H_
#define QUIRE_CLIENT_VIEWS_BLOCK_DRAWING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/terminal/terminal.h"
#include "quire/v1/inspect.pb.h"

// Pure functions that draw blocks as characters: '.' free, 'c' cached and evictable, 'u' used, 's' shared, 'P' pinned.
// Each state has its own colour if the terminal has colours.

namespace quire {

// The character of a state, coloured.
std::string DrawState(v1::BlockState state, const Terminal& terminal);

// A line that says what the characters mean.
std::string DrawLegend(const Terminal& terminal);

// The number of blocks in one state.
struct StateCount {
  v1::BlockState state;
  uint64_t count;
};

// A bar of `width` characters. Each state gets its share of them, and every state with blocks gets at least one
// character as long as there are enough.
std::string DrawBar(absl::Span<const StateCount> counts, int width, const Terminal& terminal);

// The number of blocks in each state. [number of states]
std::vector<uint64_t> CountStates(absl::string_view states);

// A map of all blocks of a worker. Each line begins with the id of its first block. A character is one block, or a
// group of blocks if the terminal has too few lines for `num_maps` such maps and what is above and below them. If
// even this is too much, each map has one line. A group is drawn as its most frequent state, or as the last of
// several equally frequent states.
struct DrawnMap {
  std::string lines;
  int blocks_per_cell = 1;
};
DrawnMap DrawMap(absl::string_view states, const Terminal& terminal, int num_maps = 1);

// Joins runs of ids: "0-3 7 9-10". Prints at most `max_parts` parts, then "...".
std::string DrawIds(absl::Span<const uint32_t> ids, int max_parts);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_BLOCK_DRAWING_H_
