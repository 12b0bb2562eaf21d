// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "kernels/cuda/emulated_device.h"

namespace quire {
namespace {

ModelConfig SmallModel() {
  ModelConfig config = Llama8B();
  config.hidden_size = 128;
  config.intermediate_size = 192;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.vocab_size = 256;
  config.max_position_embeddings = 512;
  config.attention_scale = 1 / std::sqrt(32.0f);
  config.layers.resize(2);
  return config;
}

TEST(GpuStepTest, EveryModeRunsAndCountsWhatAStepReads) {
  auto device = std::make_unique<cuda::EmulatedDevice>();
  cuda::EmulatedDevice* const the_device = device.get();
  const auto bench = GpuStepBench::Create(SmallModel(), std::nullopt, std::move(device));
  ASSERT_TRUE(bench.ok()) << bench.status();
  GpuStepOptions options;
  options.num_sequences = 3;
  options.context_tokens = 20;
  options.num_steps = 2;
  for (const bool repeats : {false, true}) {
    for (const bool overlaps : {false, true}) {
      options.repeats_layers = repeats;
      options.overlaps_steps = overlaps;
      const int num_replays = the_device->num_replays();
      const auto time = (*bench)->Measure(options);
      ASSERT_TRUE(time.ok()) << time.status();
      EXPECT_EQ(the_device->num_replays() > num_replays, repeats);
      EXPECT_GT(time->step_us, 0);
      // A layer has Q, K and V of 128 x 256, one matrix of 128 x 128 and three of 128 x 192. The output matrix is
      // 128 x 256. There are 25 tokens of K and V.
      EXPECT_EQ(time->step_bytes, 2 * (2 * (128 * 256 + 128 * 128 + 3 * 128 * 192) + 128 * 256) + 3 * 25 * 2 * 2 * 128);
    }
  }
}

TEST(GpuStepTest, QuantizedLayersAreRepeatedAndCountedInTheirBytes) {
  struct Expected {
    QuantizedFormat format;
    int layer_bytes;
  };
  // The matrices of a layer have 256, 128 and 384 rows of 128 columns, which are one group, and 128 rows of 192
  // columns, which are stored as two blocks and groups of 128.
  constexpr int kRows = 256 + 128 + 2 * 192, kWeights = kRows * 128 + 128 * 256;
  for (const auto& [format, layer_bytes] : {Expected{QuantizedFormat::kInt8, kWeights + 4 * (kRows + 128)},
                                            Expected{QuantizedFormat::kFp8, kWeights + 4 * (kRows + 2 * 128)},
                                            Expected{QuantizedFormat::kInt4, kWeights / 2 + 5 * (kRows + 2 * 128)}}) {
    auto device = std::make_unique<cuda::EmulatedDevice>();
    cuda::EmulatedDevice* const the_device = device.get();
    const auto bench = GpuStepBench::Create(SmallModel(), format, std::move(device));
    ASSERT_TRUE(bench.ok()) << bench.status();
    const auto time = (*bench)->Measure({.num_sequences = 2, .context_tokens = 20, .num_steps = 2});
    ASSERT_TRUE(time.ok()) << time.status();
    EXPECT_GT(the_device->num_replays(), 0);
    EXPECT_EQ(time->step_bytes, 2 * layer_bytes + 2 * 128 * 256 + 2 * 25 * 2 * 2 * 128);
  }
}

TEST(GpuStepTest, CopiesHaveABandwidth) {
  cuda::EmulatedDevice device;
  EXPECT_GT(CopyBandwidth(&device, 1 << 20), 0);
}

}  // namespace
}  // namespace quire
