// SPDX-License-Identifier: Apache-2.0

#include "client/views/block_drawing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace quire {
namespace {

constexpr Terminal kPlain;
constexpr Terminal kColored{.is_terminal = true, .has_color = true, .columns = 40, .rows = 24};

TEST(BlockDrawingTest, AMapHasACharacterForEachBlock) {
  const DrawnMap map = DrawMap("\1\2\3\4\5", kPlain);
  EXPECT_EQ(map.blocks_per_cell, 1);
  EXPECT_EQ(map.lines, "       0  .cusP\n");
}

TEST(BlockDrawingTest, LinesBeginWithTheIdOfTheirFirstBlock) {
  EXPECT_EQ(DrawMap(std::string(75, '\3'), kPlain).lines, "       0  " + std::string(70, 'u') + "\n      70  uuuuu\n");
}

TEST(BlockDrawingTest, WhatDoesNotFitIsDrawnInGroupsByTheMostFrequentState) {
  const Terminal small{.is_terminal = true, .columns = 40, .rows = 14};  // The map has 8 lines of 30 characters.
  std::string states(480, '\1');
  states[0] = states[2] = states[3] = '\3';
  const DrawnMap map = DrawMap(states, small);
  EXPECT_EQ(map.blocks_per_cell, 2);
  EXPECT_EQ(map.lines.substr(0, 15), "       0  uu...") << "as frequent as free, and used counts more";
  EXPECT_EQ(std::count(map.lines.begin(), map.lines.end(), '\n'), 8);
}

TEST(BlockDrawingTest, AllMapsTogetherFitIntoTheTerminal) {
  const std::string states(10'000, '\3');
  const auto num_lines = [&](int rows, int num_maps) {
    const std::string lines = DrawMap(states, {.is_terminal = true, .columns = 40, .rows = rows}, num_maps).lines;
    return std::count(lines.begin(), lines.end(), '\n');
  };
  // A map has two lines above it, and four are left for the legend and the prompts.
  EXPECT_EQ(num_lines(24, 1), 18);
  EXPECT_EQ(num_lines(24, 2), 8);
  EXPECT_EQ(num_lines(24, 4), 3);
  EXPECT_EQ(num_lines(10, 1), 4);
  EXPECT_EQ(num_lines(24, 100), 1);
}

TEST(BlockDrawingTest, ColorsComeInRuns) {
  EXPECT_EQ(DrawMap("\3\3\1", kColored).lines, "       0  \033[32muu\033[0m\033[2m.\033[0m\n");
  EXPECT_EQ(DrawState(v1::BLOCK_STATE_PINNED, kPlain), "P");
  EXPECT_EQ(DrawLegend(kPlain), ". free   c cached, free when needed   u used   s shared   P pinned");
}

TEST(BlockDrawingTest, ABarGivesEachStateItsShareAndAtLeastACharacter) {
  const StateCount counts[] = {{v1::BLOCK_STATE_SHARED, 1}, {v1::BLOCK_STATE_USED, 499}, {v1::BLOCK_STATE_FREE, 500}};
  EXPECT_EQ(DrawBar(counts, 10, kPlain), "suuuu.....");
  EXPECT_EQ(DrawBar({}, 4, kPlain), "    ");
  const StateCount nothing[] = {{v1::BLOCK_STATE_FREE, 0}};
  EXPECT_EQ(DrawBar(nothing, 4, kPlain), "    ");
}

TEST(BlockDrawingTest, IdsAreJoinedToRuns) {
  const uint32_t ids[] = {0, 1, 2, 3, 7, 10, 9};
  EXPECT_EQ(DrawIds(ids, 10), "0-3 7 10 9");
  EXPECT_EQ(DrawIds(ids, 2), "0-3 7 ...");
  EXPECT_EQ(DrawIds({}, 2), "");
}

}  // namespace
}  // namespace quire
