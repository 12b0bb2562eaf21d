// SPDX-License-Identifier: Apache-2.0

#include "worker/gpu_memory.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/worker/model/model_files.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/safetensors_writer.h"
#include "worker/model/config.h"
#include "worker/model/model.h"

namespace quire {
namespace {

constexpr int64_t kGigabytes = int64_t{1} << 30;

ModelConfig Llama3With70B() {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
          "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
          "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16"})",
      "");
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

GpuMemory H100(int64_t free_bytes) {
  return {.device = "--device=cuda (H100, sm_90)", .total_bytes = 79 * kGigabytes, .free_bytes = free_bytes};
}

TEST(GpuMemoryTest, WeightsThatDoNotFitAreRefusedWithTheirBytesInEachWidth) {
  const absl::Status status = CheckWeightsFit(Llama3With70B(), {}, H100(78 * kGigabytes));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "--device=cuda (H100, sm_90) has 79.0 GiB of memory, of which 78.0 GiB are free; the weights need 131.4 "
            "GiB in 16 bits, and with another --quantize 67.7 GiB in int8 and 38.3 GiB in int4; all weights must be in "
            "the memory of the GPU");
}

TEST(GpuMemoryTest, WhereTheGpuIsLargeEnoughOtherProcessesAreNamed) {
  const WeightRounding int8 = {.layers = Quantization::kInt8};
  EXPECT_EQ(std::string(CheckWeightsFit(Llama3With70B(), int8, H100(12 * kGigabytes)).message()),
            "--device=cuda (H100, sm_90) has 79.0 GiB of memory, of which 12.0 GiB are free; the weights need 67.7 GiB "
            "in int8, and with another --quantize 131.4 GiB in 16 bits and 38.3 GiB in int4; other processes use the "
            "rest of the memory");
  EXPECT_TRUE(CheckWeightsFit(Llama3With70B(), int8, H100(78 * kGigabytes)).ok());
}

TEST(GpuMemoryTest, TheLimitIsTheByte) {
  const int64_t needed = WeightBytesOnGpu(Llama3With70B(), {});
  EXPECT_TRUE(CheckWeightsFit(Llama3With70B(), {}, H100(needed)).ok());
  EXPECT_FALSE(CheckWeightsFit(Llama3With70B(), {}, H100(needed - 1)).ok());
}

TEST(GpuMemoryTest, AQuantizedCheckpointStaysAsItIs) {
  ModelConfig config = Llama3With70B();
  config.quantization = {.format = CheckpointFormat::kGptq, .group = 128};
  EXPECT_EQ(std::string(CheckWeightsFit(config, {}, H100(20 * kGigabytes)).message()),
            "--device=cuda (H100, sm_90) has 79.0 GiB of memory, of which 20.0 GiB are free; the weights need 38.3 GiB "
            "in int4, as the checkpoint has them; other processes use the rest of the memory");
  config.quantization = {.format = CheckpointFormat::kFp8};
  EXPECT_EQ(WidthOnGpu(config.quantization, Quantization::kNone), WeightWidth::kFp8);
  EXPECT_EQ(WidthOnGpu(config.quantization, Quantization::kInt4), WeightWidth::kInt4);
  config.quantization = {.format = CheckpointFormat::kGptq, .bits = 8, .group = 128};  // It is dequantized.
  EXPECT_EQ(WidthOnGpu(config.quantization, Quantization::kNone), WeightWidth::k16);
}

// A zero point of 4 bits has one byte on a GPU, so a group of 32 has 16 + 5 bytes.
TEST(GpuMemoryTest, StacksThatTheCheckpointDoesNotQuantizeAreCountedIn16Bits) {
  ModelConfig config = Llama3With70B();
  config.quantization = {.format = CheckpointFormat::kGgufQ4_0, .group = 32};
  const int64_t before = WeightBytesOnGpu(config, {});
  config.quantization.plain_stacks = {.attention_output = 2};
  const int64_t weights = int64_t{2} * 8192 * 8192;
  EXPECT_EQ(WeightBytesOnGpu(config, {}) - before, 2 * weights - weights / 32 * 21);
}

// The embedding keeps its 16 bits. If it is the output matrix as well, the rounded copy comes on top.
TEST(GpuMemoryTest, ARoundedOutputMatrixIsCounted) {
  ModelConfig config = Llama3With70B();
  const int64_t rounded = int64_t{128256} * (8192 + 4);
  EXPECT_EQ(WeightBytesOnGpu(config, {.output = true}),
            WeightBytesOnGpu(config, {}) - int64_t{2} * 128256 * 8192 + rounded);
  config.tie_word_embeddings = true;
  EXPECT_EQ(WeightBytesOnGpu(config, {.output = true}), WeightBytesOnGpu(config, {}) + rounded);
}

// A sequence of 4096 tokens has 1.25 GiB of K and V: 2 * 80 layers * 8 heads * 128 * 2 bytes for each token.
TEST(GpuMemoryTest, WhatFitsBesideTheWeightsIsExplained) {
  const GpuMemory memory = {.device = "a GPU", .total_bytes = 80 * kGigabytes, .free_bytes = 80 * kGigabytes};
  EXPECT_EQ(ExplainGpuMemory(Llama3With70B(), {}, 16, 0.9, memory),
            "LlamaForCausalLM: 70.554 billion weights; 80 layers, 64 heads, 8 KV heads of 128, context 8192\n"
            "a GPU has 80.0 GiB of memory, of which 80.0 GiB are free\n\n"
            "K and V      a token      a block of 16  a sequence of 4096 (256 blocks)\n"
            "16 bits      320.0 KiB    5.0 MiB        1.2 GiB\n"
            "int8         165.0 KiB    2.6 MiB        660.0 MiB\n\n"
            "weights      memory       left           sequences of 4096 in 0.9 of what is left, with K and V in 16 "
            "bits, int8\n"
            "16 bits      131.4 GiB    does not fit   0, 0\n"
            "int8         67.7 GiB     12.3 GiB       8, 17\n"
            "int4         38.3 GiB     41.7 GiB       30, 58\n\n"
            "CUDA and the steps take a part of what is left, which the worker measures at its start; beside weights in "
            "int8, int4 or fp8, prompts take up to 32.0 MiB for parts of products, and rounded inputs a byte for each "
            "number\n");
}

TEST(GpuMemoryTest, Int8KvIsLeftOutWhereAGpuHasNoKernelsForIt) {
  const GpuMemory memory = {.device = "a GPU", .total_bytes = 80 * kGigabytes, .free_bytes = 80 * kGigabytes};
  ModelConfig config = Llama3With70B();
  EXPECT_THAT(ExplainGpuMemory(config, {}, 8, 0.9, memory), testing::HasSubstr("with K and V in 16 bits\n"));
  config.head_dim = 256;
  EXPECT_THAT(ExplainGpuMemory(config, {}, 16, 0.9, memory), testing::HasSubstr("with K and V in 16 bits\n"));
}

// Counts the bytes that were ever allocated.
class CountedDevice : public cuda::EmulatedDevice {
 public:
  explicit CountedDevice(int64_t* bytes) : bytes_(bytes) {}
  void* Allocate(size_t bytes) override {
    *bytes_ += static_cast<int64_t>(bytes);
    return EmulatedDevice::Allocate(bytes);
  }

 private:
  int64_t* const bytes_;
};

// Norms have 32 bits. The checks of products of quantized weights need memory, too.
TEST(GpuMemoryTest, WhatALoadTakesIsALittleMore) {
  make_model::ModelShape shape = *make_model::Preset("tiny");
  shape.dim = 128;
  shape.ffn = 256;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  shape.vocab = 2048;
  ASSERT_EQ(make_model::Complete(&shape), "");
  const TestDirectory directory;
  directory.Write("config.json", make_model::ConfigJson(shape, "bfloat16"));
  const absl::Status written = make_model::WriteRandomTensors(make_model::TensorsOf(shape), DataType::kBFloat16, 1,
                                                              directory.path() + "/model.safetensors");
  ASSERT_TRUE(written.ok()) << written;
  for (const Quantization layers : {Quantization::kNone, Quantization::kInt8, Quantization::kInt4}) {
    const WeightRounding rounding = {.layers = layers, .output = layers == Quantization::kInt8};
    int64_t bytes = 0;
    cuda::CudaBackend backend(std::make_unique<CountedDevice>(&bytes), {.element = DataType::kBFloat16});
    bytes = 0;
    const auto model = LoadModel(directory.path(), &backend, /*progress=*/nullptr, rounding);
    ASSERT_TRUE(model.ok()) << model.status();
    const int64_t told = WeightBytesOnGpu((*model)->config, rounding);
    EXPECT_GE(bytes, told) << Name(layers);
    if (layers == Quantization::kNone) {
      EXPECT_LT(bytes - told, told / 8);
    }
  }
}

}  // namespace
}  // namespace quire
