#include "bench/gpu_step.h"

#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"

namespace quire {
namespace {

TEST(GpuStepTest, EveryModeRunsAndCountsWhatAStepReads) {
  GpuStepOptions options;
  options.config = Llama8B();
  options.config.hidden_size = 128;
  options.config.intermediate_size = 192;
  options.config.num_layers = 2;
  options.config.num_heads = 4;
  options.config.num_kv_heads = 2;
  options.config.head_dim = 32;
  options.config.vocab_size = 256;
  options.config.max_position_embeddings = 512;
  options.config.sliding_windows.assign(2, 0);
  options.num_sequences = 3;
  options.context_tokens = 20;
  options.num_steps = 2;
  for (const bool repeats : {false, true}) {
    for (const bool overlaps : {false, true}) {
      options.repeats_layers = repeats;
      options.overlaps_steps = overlaps;
      const auto time = MeasureGpuStep(options, std::make_unique<cuda::EmulatedDevice>());
      ASSERT_TRUE(time.ok()) << time.status();
      EXPECT_GT(time->step_us, 0);
      // A layer has Q, K and V of 128 x 256, one matrix of 128 x 128 and three of 128 x 192. The output matrix is
      // 128 x 256. There are 25 tokens of K and V.
      EXPECT_EQ(time->step_bytes, 2 * (2 * (128 * 256 + 128 * 128 + 3 * 128 * 192) + 128 * 256) + 3 * 25 * 2 * 2 * 128);
    }
  }
}

TEST(GpuStepTest, CopiesHaveABandwidth) {
  cuda::EmulatedDevice device;
  EXPECT_GT(CopyBandwidth(&device, 1 << 20), 0);
}

}  // namespace
}  // namespace quire
