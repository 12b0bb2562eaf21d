// SPDX-License-Identifier: Apache-2.0

#include "worker/cache_grouping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr int kBlockSize = 16, kMaxSliceTokens = 2048;

// A model with these windows, by layer.
ModelConfig ModelWith(const std::vector<int>& windows, int context) {
  ModelConfig config{};
  config.num_layers = static_cast<int>(windows.size());
  config.max_position_embeddings = context;
  for (const int window : windows) config.layers.push_back({.window = window});
  MakeOneCacheGroup(&config);
  return config;
}

// Layers of which every `period`-th keeps all tokens, as in Gemma 3.
std::vector<int> EveryNth(int num_layers, int period, int window) {
  std::vector<int> windows;
  for (int i = 0; i < num_layers; ++i) windows.push_back((i + 1) % period == 0 ? 0 : window);
  return windows;
}

std::vector<int> Widths(const ModelConfig& config) {
  std::vector<int> widths;
  for (const CacheGroup& group : config.cache_groups) widths.push_back(group.blocks_per_sheet);
  return widths;
}

ModelConfig Divided(ModelConfig config, int block_size = kBlockSize) {
  DivideByWindows(block_size, kMaxSliceTokens, &config);
  return config;
}

TEST(CacheGroupingTest, ABlockHasTheSlotsThatWasteLeast) {
  const ModelConfig gemma = Divided(ModelWith(EveryNth(48, 6, 1024), 131072));
  EXPECT_EQ(gemma.num_slots(), 8);
  EXPECT_THAT(Widths(gemma), ElementsAre(1, 5));
  EXPECT_EQ(gemma.cache_groups[0].window_tokens, 0);
  EXPECT_EQ(gemma.cache_groups[1].window_tokens, 1024);
  // 10 and 52 layers have no useful divisor in common. 13 slots would waste three of them for each token, and 10 slots
  // eight of 60 in the window.
  const ModelConfig large = Divided(ModelWith(EveryNth(62, 6, 1024), 131072));
  EXPECT_EQ(large.num_slots(), 11);
  EXPECT_THAT(Widths(large), ElementsAre(1, 5));
}

TEST(CacheGroupingTest, OfFormsWithAsManyBytesTheOneWithFewerColumnsIsChosen) {
  const ModelConfig half = Divided(ModelWith(EveryNth(24, 2, 128), 8192));
  EXPECT_EQ(half.num_slots(), 12);
  EXPECT_THAT(Widths(half), ElementsAre(1, 1));
}

// The window is longer than sequences of 8192 tokens, which save nothing. Longer ones do.
TEST(CacheGroupingTest, LongWindowsCountForLongSequences) {
  const ModelConfig ministral = Divided(ModelWith(EveryNth(36, 4, 32768), 131072));
  EXPECT_THAT(Widths(ministral), ElementsAre(1, 3));
}

TEST(CacheGroupingTest, EveryLayerHasAPlaceOfItsOwnAmongTheBlocksOfItsGroup) {
  std::vector<int> windows = EveryNth(30, 6, 512);
  for (int i = 0; i < 30; i += 5) windows[i] = windows[i] == 0 ? 0 : 2048;
  const ModelConfig config = Divided(ModelWith(windows, 32768));
  ASSERT_EQ(config.cache_groups.size(), 3u);
  std::set<std::pair<int, int>> places;
  for (const LayerConfig& layer : config.layers) {
    EXPECT_LT(layer.slot, config.num_slots());
    EXPECT_TRUE(places.emplace(layer.column, layer.slot).second) << layer.column << " " << layer.slot;
    int group = 0, end = config.cache_groups[0].blocks_per_sheet;
    while (layer.column >= end) end += config.cache_groups[++group].blocks_per_sheet;
    EXPECT_EQ(config.cache_groups[group].window_tokens, layer.window);
  }
}

TEST(CacheGroupingTest, WhatSavesNothingStaysOneGroup) {
  const std::vector<CacheGroup> one = {CacheGroup{}};
  EXPECT_EQ(Divided(ModelWith({0, 0, 0, 0}, 8192)).cache_groups, one) << "no windows";
  EXPECT_EQ(Divided(ModelWith({512, 512, 512, 512}, 8192)).cache_groups, one) << "no layer keeps all tokens";
  EXPECT_EQ(Divided(ModelWith(EveryNth(4, 2, 8192), 8192)).cache_groups, one) << "a window as long as the context";
  EXPECT_EQ(Divided(ModelWith(EveryNth(4, 2, 15), 8192)).cache_groups, one) << "a window smaller than a block";
  EXPECT_EQ(Divided(ModelWith({0, 0, 0, 0, 0, 0, 512}, 4096)).cache_groups, one) << "six of seven slots would be empty";
}

TEST(CacheGroupingTest, AWindowSmallerThanABlockKeepsAllTokensBesideOthers) {
  const ModelConfig config = Divided(ModelWith({0, 8, 512, 512}, 8192));
  EXPECT_THAT(Widths(config), ElementsAre(1, 1));
  EXPECT_EQ(config.layers[1].column, 0);
  EXPECT_EQ(config.layers[1].window, 8);
}

}  // namespace
}  // namespace quire
