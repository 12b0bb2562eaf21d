// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/layer_graphs.h"

#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"

namespace quire::cuda {
namespace {

// A device that has no memory for recordings while `is_full`.
class FullDevice : public EmulatedDevice {
 public:
  std::unique_ptr<Graph> EndRecording() override {
    std::unique_ptr<Graph> graph = EmulatedDevice::EndRecording();
    return is_full ? nullptr : std::move(graph);
  }

  bool is_full = false;
};

class LayerGraphsTest : public ::testing::Test {
 protected:
  // Runs one step and returns whether its layers were repeated.
  bool Step(int num_tokens, const char* attention = "d", int64_t num_moves = 0) {
    const bool is_repeated = graphs_.ReplayOrRecord({this, num_tokens, false, 0, attention}, num_moves);
    if (graphs_.is_recording()) {
      EXPECT_NE(graphs_.EndRecording(), device_.is_full);
    }
    return is_repeated;
  }

  FullDevice device_;
  LayerGraphs graphs_{&device_};
};

TEST_F(LayerGraphsTest, StepsArePaddedToFewNumbersOfTokens) {
  EXPECT_EQ(LayerGraphs::PaddedTokens(1), 1);
  EXPECT_EQ(LayerGraphs::PaddedTokens(3), 4);
  EXPECT_EQ(LayerGraphs::PaddedTokens(8), 8);
  EXPECT_EQ(LayerGraphs::PaddedTokens(9), 16);
  EXPECT_EQ(LayerGraphs::PaddedTokens(17), 24);
  EXPECT_EQ(LayerGraphs::PaddedTokens(LayerGraphs::kMaxTokens), LayerGraphs::kMaxTokens);
}

TEST_F(LayerGraphsTest, AShapeIsRecordedOnceAndRepeated) {
  EXPECT_FALSE(Step(8));
  EXPECT_TRUE(Step(8));
  EXPECT_FALSE(Step(16)) << "other tokens";
  EXPECT_FALSE(Step(8, "dm")) << "other launches";
  EXPECT_TRUE(Step(8));
  EXPECT_EQ(device_.num_replays(), 5) << "what was recorded runs, too";
}

TEST_F(LayerGraphsTest, ARunIsRememberedUntilReset) {
  EXPECT_FALSE(graphs_.HasRun(this, 8, false));
  EXPECT_FALSE(graphs_.HasRun(this, 8, false)) << "asking changes nothing";
  graphs_.AddRun(this, 8, false);
  EXPECT_TRUE(graphs_.HasRun(this, 8, false));
  EXPECT_FALSE(graphs_.HasRun(this, 16, false));
  EXPECT_FALSE(graphs_.HasRun(this, 8, true)) << "also with draws";
  EXPECT_FALSE(graphs_.HasRun(&device_, 8, false)) << "another model";
  graphs_.Reset();
  EXPECT_FALSE(graphs_.HasRun(this, 8, false));
}

TEST_F(LayerGraphsTest, LayersAreRecordedAnewAfterAMove) {
  EXPECT_FALSE(Step(8));
  EXPECT_FALSE(Step(8, "d", /*num_moves=*/1));
  EXPECT_TRUE(Step(8, "d", 1));
  device_.Free(device_.Allocate(1));
  EXPECT_FALSE(Step(8, "d", 1));
  EXPECT_TRUE(Step(8, "d", 1));
  device_.FreeUnrecorded(device_.Allocate(1));
  EXPECT_TRUE(Step(8, "d", 1)) << "nothing that recordings use";
  graphs_.Reset();
  EXPECT_FALSE(Step(8, "d", 1));
}

TEST_F(LayerGraphsTest, WithoutMemoryNothingIsRecordedUntilRecordingsAreForgotten) {
  EXPECT_FALSE(Step(8));
  device_.is_full = true;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(Step(16));
  EXPECT_FALSE(graphs_.ReplayOrRecord({this, 16, false, 0, "d"}, 0));
  EXPECT_FALSE(graphs_.is_recording());
  EXPECT_TRUE(Step(8)) << "what was recorded before";
  EXPECT_EQ(device_.num_replays(), 2);
  device_.Free(device_.Allocate(1));
  EXPECT_FALSE(Step(16)) << "tries again, in vain";
  device_.is_full = false;
  EXPECT_FALSE(graphs_.ReplayOrRecord({this, 16, false, 0, "d"}, 0));
  EXPECT_FALSE(graphs_.is_recording());
  device_.Free(device_.Allocate(1));
  EXPECT_FALSE(Step(16));
  EXPECT_TRUE(Step(16));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "GPU: no memory to record the layers of a step; they are launched one by one\n")
      << "once";
}

TEST_F(LayerGraphsTest, AFullStoreStillRepeatsWhatItHas) {
  for (size_t i = 1; i <= LayerGraphs::kMaxGraphs; ++i) EXPECT_FALSE(Step(static_cast<int>(i)));
  EXPECT_TRUE(Step(1));
  EXPECT_TRUE(Step(2));
  EXPECT_FALSE(Step(LayerGraphs::kMaxGraphs + 1)) << "for which the third one goes";
  for (const int kept : {1, 2, 4, int{LayerGraphs::kMaxGraphs}, int{LayerGraphs::kMaxGraphs} + 1}) {
    EXPECT_TRUE(Step(kept)) << kept;
  }
  EXPECT_FALSE(Step(3));
}

}  // namespace
}  // namespace quire::cuda
