// SPDX-License-Identifier: Apache-2.0

#include "client/views/block_drawing.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire {
namespace {

// Lines of a terminal that no map has: the legend and the prompts before and behind, which may be folded, and those
// above each map.
constexpr int kOtherRows = 4;
constexpr int kHeadRows = 2;
// The limit where standard output is not a terminal.
constexpr int kPlainMapRows = 64;
constexpr int kIdWidth = 8;

struct Style {
  char character;
  const char* color;  // An SGR sequence's parameters.
  const char* name;
};

constexpr Style kStyles[] = {
    {'?', "0", "unknown"}, {'.', "2", "free"},    {'c', "36", "cached, free when needed"},
    {'u', "32", "used"},   {'s', "33", "shared"}, {'P', "35", "pinned"},
};
constexpr int kNumStates = std::size(kStyles);

const Style& StyleOf(v1::BlockState state) {
  return kStyles[state > 0 && state < kNumStates ? state : 0];
}

// A run of equal states needs only one colour sequence.
std::string DrawCells(absl::Span<const v1::BlockState> cells, const Terminal& terminal) {
  std::string text;
  for (size_t i = 0; i < cells.size();) {
    size_t end = i;
    while (end < cells.size() && cells[end] == cells[i]) ++end;
    const Style& style = StyleOf(cells[i]);
    const std::string run(end - i, style.character);
    terminal.has_color ? absl::StrAppend(&text, "\033[", style.color, "m", run, "\033[0m")
                       : absl::StrAppend(&text, run);
    i = end;
  }
  return text;
}

v1::BlockState MostFrequent(absl::string_view states) {
  const std::vector<uint64_t> counts = CountStates(states);
  int best = 0;
  for (int i = 1; i < kNumStates; ++i) {
    if (counts[i] > 0 && counts[i] >= counts[best]) best = i;
  }
  return static_cast<v1::BlockState>(best);
}

}  // namespace

std::string DrawState(v1::BlockState state, const Terminal& terminal) {
  return DrawCells({state}, terminal);
}

std::string DrawLegend(const Terminal& terminal) {
  std::string text;
  for (int i = 1; i < kNumStates; ++i) {
    absl::StrAppend(&text, i == 1 ? "" : "   ", DrawState(static_cast<v1::BlockState>(i), terminal), " ",
                    kStyles[i].name);
  }
  return text;
}

std::string DrawBar(absl::Span<const StateCount> counts, int width, const Terminal& terminal) {
  uint64_t total = 0;
  for (const StateCount& part : counts) total += part.count;
  std::vector<v1::BlockState> cells;
  uint64_t before = 0;
  for (const StateCount& part : counts) {
    before += part.count;
    if (part.count == 0) continue;
    const size_t end = (before * width + total / 2) / total;
    const size_t least = std::min<size_t>(cells.size() + 1, width);
    cells.resize(std::max(end, least), part.state);
  }
  cells.resize(width, counts.empty() ? v1::BLOCK_STATE_UNSPECIFIED : counts.back().state);
  return total == 0 ? std::string(width, ' ') : DrawCells(cells, terminal);
}

std::vector<uint64_t> CountStates(absl::string_view states) {
  std::vector<uint64_t> counts(kNumStates);
  for (const char state : states) ++counts[state > 0 && state < kNumStates ? state : 0];
  return counts;
}

DrawnMap DrawMap(absl::string_view states, const Terminal& terminal, int num_maps) {
  const size_t width = std::max(terminal.columns - kIdWidth - 2, 10);
  const int room = (terminal.rows - kOtherRows) / num_maps - kHeadRows;
  const size_t rows = terminal.is_terminal ? std::max(room, 1) : kPlainMapRows;
  const size_t num_cells = width * rows;
  const size_t group = std::max<size_t>((states.size() + num_cells - 1) / num_cells, 1);
  DrawnMap map{.lines = "", .blocks_per_cell = static_cast<int>(group)};
  for (size_t first = 0; first < states.size(); first += width * group) {
    std::vector<v1::BlockState> cells;
    for (size_t i = first; i < std::min(first + width * group, states.size()); i += group) {
      cells.push_back(MostFrequent(states.substr(i, group)));
    }
    absl::StrAppendFormat(&map.lines, "%*d  %s\n", kIdWidth, first, DrawCells(cells, terminal));
  }
  return map;
}

std::string DrawIds(absl::Span<const uint32_t> ids, int max_parts) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    if (max_parts-- == 0) return absl::StrCat(text, " ...");
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : " ", ids[i]);
    if (last > i) absl::StrAppend(&text, "-", ids[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace quire
