// SPDX-License-Identifier: Apache-2.0

#include "worker/memory_explanation.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/test_paths.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/model.h"
#include "worker/model/shard.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig Llama2With70B() {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
          "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000,
          "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "torch_dtype": "float16"})",
      "");
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

ModelConfig RankOf(const ModelConfig& whole, int rank, int size) {
  const absl::StatusOr<ModelConfig> shard = ShardOf(whole, rank, size);
  EXPECT_TRUE(shard.ok()) << shard.status();
  return *shard;
}

// The sum of its tensors on the hub is 68,976,648,192 elements.
TEST(MemoryExplanationTest, WeightsAreCounted) {
  const MemoryNeeds needs = MemoryNeedsOf(Llama2With70B());
  EXPECT_EQ(needs.num_weights, 68'976'648'192);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::k16), 2 * needs.num_weights);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::k32), 4 * needs.num_weights);
  // Embedding, output matrix and norms keep 16 bits: 2 * 32000 * 8192 + 161 * 8192.
  EXPECT_EQ(needs.num_weights - needs.layers.weights, 525'606'912);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::kInt8),
            needs.layers.weights + 2 * 525'606'912 + 4 * 80 * int64_t{10240 + 8192 + 57344 + 8192});
}

TEST(MemoryExplanationTest, TheWeightsOfEveryFamilyAreThoseOfItsCheckpoint) {
  for (const char* name : {"llama3", "gemma2", "olmo2", "phi3", "seed_oss", "arcee", "cohere2", "glm4", "hunyuan",
                           "exaone4", "ministral3_vision", "gemma3_vision", "qwen3_vl"}) {
    const std::string path = SourcePath(absl::StrCat("tests/golden/models/", name));
    const auto config = ReadModelConfig(path);
    const auto checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
    EXPECT_EQ(MemoryNeedsOf(*config).num_weights, checkpoint->num_bytes() / static_cast<int64_t>(sizeof(float)))
        << name;
  }
}

// Each group of 128 columns has a scale, a zero point and a byte of padding. LLaMA-2 has 64 groups in a row of 8192
// columns and 224 in one of 28672.
TEST(MemoryExplanationTest, WeightsOf4BitsAreCountedWithTheirScales) {
  const MemoryNeeds needs = MemoryNeedsOf(Llama2With70B());
  const int64_t groups = 80 * (int64_t{10240 + 8192 + 57344} * 64 + int64_t{8192} * 224);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::kInt4), needs.layers.weights / 2 + 2 * 525'606'912 + 6 * groups);
}

// A zero point has no padding there. Matrices are dequantized in slices, or sums are scaled in parts.
TEST(MemoryExplanationTest, WhatAGpuTakesIsTold) {
  const MemoryNeeds needs = MemoryNeedsOf(Llama2With70B());
  EXPECT_EQ(GpuWeightBytes(needs, WeightWidth::kInt4),
            needs.layers.weights / 2 + 2 * 525'606'912 + 5 * needs.layers.groups);
  EXPECT_EQ(GpuWeightBytes(needs, WeightWidth::kInt8), WeightBytes(needs, WeightWidth::kInt8));
  EXPECT_EQ(GpuWeightBytes(needs, WeightWidth::k32), WeightBytes(needs, WeightWidth::k16));
  EXPECT_THAT(
      ExplainMemory(Llama2With70B(), 16, 200 * kGiB),
      HasSubstr("\n\non a GPU, weights in int4 take 35.3 GiB; beside weights in int8, int4 or fp8, prompts take "
                "up to 32.0 MiB for parts of products, and rounded inputs a byte for each number\n"));
}

TEST(MemoryExplanationTest, WeightsOfFp8AreCountedWithTheScalesOfRowsOrBlocks) {
  ModelConfig config = Llama2With70B();
  MemoryNeeds needs = MemoryNeedsOf(config);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::kFp8), WeightBytes(needs, WeightWidth::kInt8));
  config.quantization = {.format = CheckpointFormat::kFp8, .fp8_block = {.rows = 128, .cols = 128}};
  needs = MemoryNeedsOf(config);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::kFp8), needs.layers.weights + 2 * 525'606'912 + 4 * needs.layers.groups);
  EXPECT_THAT(ExplainMemory(config, 16, 200 * kGiB), HasSubstr("\nfp8          66.7 GiB\n"));
}

// The model has 80 layers. In 3 of them Q, K and V are not FP8, and in 5 of them the last matrix of the MLP is not.
TEST(MemoryExplanationTest, StacksThatACheckpointDoesNotQuantizeKeep16Bits) {
  ModelConfig config = Llama2With70B();
  const auto added = [&](WeightWidth width) {
    config.quantization.plain_stacks = {};
    const int64_t before = WeightBytes(MemoryNeedsOf(config), width);
    config.quantization.plain_stacks = {.qkv = 3, .down = 5};
    return WeightBytes(MemoryNeedsOf(config), width) - before;
  };
  const int64_t qkv_rows = 3 * int64_t{10240}, down_rows = 5 * int64_t{8192};
  const int64_t weights = qkv_rows * 8192 + down_rows * 28672;
  config.quantization = {.format = CheckpointFormat::kFp8};
  EXPECT_EQ(added(WeightWidth::kFp8), weights - 4 * (qkv_rows + down_rows));
  EXPECT_EQ(added(WeightWidth::kInt8), 0) << "--quantize rounds all of them";
  EXPECT_EQ(added(WeightWidth::k16), 0);
  config.quantization = {.format = CheckpointFormat::kFp8, .fp8_block = {.rows = 128, .cols = 128}};
  EXPECT_EQ(added(WeightWidth::kFp8), weights - 4 * weights / 128);
  config.quantization = {.format = CheckpointFormat::kInt8};
  EXPECT_EQ(added(WeightWidth::kInt8), weights - 4 * (qkv_rows + down_rows));
  config.quantization = {.format = CheckpointFormat::kGgufQ4_0, .group = 32};
  EXPECT_EQ(added(WeightWidth::kInt4), 2 * weights - weights / 32 * (16 + 6));

  const WeightRounding int4 = {.layers = Quantization::kInt4};
  const int64_t on_cpu = WeightBytesOnCpu(config, int4);
  EXPECT_EQ(on_cpu, WeightBytes(MemoryNeedsOf(config), WeightWidth::kInt4));
  config.torch_dtype = "float32";
  EXPECT_EQ(WeightBytesOnCpu(config, int4) - on_cpu, 2 * weights + 2 * int64_t{525'606'912});
}

// 8 sequences of 4096 tokens need 10 GiB: 2 * 80 layers * 8 KV heads * 128 * 2 bytes are 320 KiB for each token.
TEST(MemoryExplanationTest, EightSequencesOfLlama2With70BillionWeightsNeedTenGibibytes) {
  const ModelConfig config = Llama2With70B();
  EXPECT_EQ(MemoryNeedsOf(config).kv_numbers * 2 * 4096 * 8, 10 * kGiB);
  EXPECT_THAT(ExplainMemory(config, 16, 200 * kGiB),
              AllOf(HasSubstr("16 bits      320.0 KiB    5.0 MiB        1.2 GiB\n"),
                    HasSubstr("float32      640.0 KiB    10.0 MiB       2.5 GiB\n"),
                    HasSubstr("16 bits      128.5 GiB\n"), HasSubstr("80 layers, 64 heads, 8 KV heads of 128")));
}

// Qwen3-30B-A3B. The sum of its tensors on the hub is 30,532,122,624 elements.
TEST(MemoryExplanationTest, ExpertsAreCountedAndSoIsWhatATokenUses) {
  absl::StatusOr<ModelConfig> config = ParseModelConfig(
      R"({"architectures": ["Qwen3MoeForCausalLM"], "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
          "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
          "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936, "torch_dtype": "bfloat16"})",
      "");
  ASSERT_TRUE(config.ok()) << config.status();
  const MemoryNeeds needs = MemoryNeedsOf(*config);
  const int64_t expert = 3 * 2048 * 768, routers = int64_t{48} * 128 * 2048;
  EXPECT_EQ(needs.num_weights, 30'532'122'624);
  EXPECT_EQ(needs.num_active_weights, 30'532'122'624 - 48 * 120 * expert);
  EXPECT_EQ(needs.router_weights, routers);
  EXPECT_EQ(WeightBytes(needs, WeightWidth::k16), 2 * needs.num_weights + 2 * routers) << "routers are float32";
  EXPECT_EQ(WeightBytesOnCpu(*config, {}), WeightBytes(needs, WeightWidth::k16));
  EXPECT_THAT(ExplainMemory(*config, 16, 200 * kGiB),
              HasSubstr("Qwen3MoeForCausalLM: 30.532 billion weights, 3.353 billion for a token (8 of 128 experts); 48 "
                        "layers, "));

  int64_t experts_of_ranks = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const MemoryNeeds part = MemoryNeedsOf(RankOf(*config, rank, 4));
    EXPECT_EQ(part.router_weights, routers);
    experts_of_ranks += part.layers.weights;
  }
  EXPECT_EQ(experts_of_ranks, needs.layers.weights);

  // Of a checkpoint in FP8, one expert has a matrix that is not.
  config->quantization = {.format = CheckpointFormat::kFp8, .fp8_block = {.rows = 128, .cols = 128}};
  const int64_t before = WeightBytes(MemoryNeedsOf(*config), WeightWidth::kFp8);
  config->quantization.plain_stacks = {.expert_down = 1};
  EXPECT_EQ(WeightBytes(MemoryNeedsOf(*config), WeightWidth::kFp8) - before, expert / 3 - 4 * expert / 3 / 128);
}

// The ranks together have the model once, but for the embedding and the norms, which every rank has.
TEST(MemoryExplanationTest, RanksHaveTheirPartsOfTheWeightsAndOfKAndV) {
  const ModelConfig config = Llama2With70B();
  const MemoryNeeds whole = MemoryNeedsOf(config);
  const int64_t embedding_and_norms = int64_t{32000} * 8192 + int64_t{161} * 8192;
  for (const int size : {2, 8}) {
    MemoryNeeds all{};
    for (int rank = 0; rank < size; ++rank) {
      const MemoryNeeds needs = MemoryNeedsOf(RankOf(config, rank, size));
      all.num_weights += needs.num_weights;
      all.layers.weights += needs.layers.weights;
      EXPECT_EQ(needs.kv_numbers, whole.kv_numbers / size);
    }
    EXPECT_EQ(all.layers.weights, whole.layers.weights);
    EXPECT_EQ(all.num_weights, whole.num_weights + (size - 1) * embedding_and_norms);
  }
  // A rank has its rows of the output matrix beside an embedding that is also the output matrix, and rounds these rows.
  ModelConfig tied = config;
  tied.tie_word_embeddings = true;
  EXPECT_EQ(MemoryNeedsOf(RankOf(tied, 1, 8)).num_weights, MemoryNeedsOf(RankOf(config, 1, 8)).num_weights);
  EXPECT_EQ(AddedByRoundedOutput(RankOf(tied, 1, 8), 2), 4000 * (8192 + 4) - 4000 * 8192 * 2);
}

TEST(MemoryExplanationTest, MemoryOfARankIsExplainedBesideItsShareOfTheMachine) {
  const std::string text = ExplainMemory(RankOf(Llama2With70B(), 0, 8), 16, 64 * kGiB, /*ranks_of_host=*/8);
  EXPECT_THAT(text, AllOf(HasSubstr(": 68.977 billion weights; 80 layers, 64 heads, 8 KV heads of 128, "),
                          HasSubstr("\nthis machine has 512.0 GiB available, and each of 8 ranks 64.0 GiB of it; what "
                                    "follows is for one rank\n"),
                          HasSubstr("16 bits      16.5 GiB\n"), HasSubstr("16 bits      40.0 KiB ")));
}

TEST(MemoryExplanationTest, OneLayerIsNotALayers) {
  ModelConfig config = Llama2With70B();
  config.num_layers = 1;
  config.num_kv_heads = 1;
  EXPECT_THAT(ExplainMemory(config, 16, kGiB), HasSubstr(" weights; 1 layer, 64 heads, 1 KV head of 128, context"));
}

// A token has 160 * 8 heads of 128 bytes and a scale of 4: 165 KiB, 0.516 of the 320 KiB of 16 bits.
TEST(MemoryExplanationTest, KAndVOfInt8AreCountedWithTheirScales) {
  const ModelConfig config = Llama2With70B();
  EXPECT_EQ(KvBytesPerToken(MemoryNeedsOf(config), KvType::kInt8), 160 * 8 * (128 + 4));
  EXPECT_THAT(ExplainMemory(config, 16, 200 * kGiB), HasSubstr("int8         165.0 KiB    2.6 MiB        660.0 MiB\n"));
}

TEST(MemoryExplanationTest, KAndVNeedWhatTheBlocksOfThePoolTake) {
  const ModelConfig config = Llama2With70B();
  for (const KvType type : {KvType::kFloat32, KvType::kFloat16, KvType::kBFloat16, KvType::kInt8}) {
    const KvLayout layout = {.num_layers = config.num_layers,
                             .num_kv_heads = config.num_kv_heads,
                             .head_dim = config.head_dim,
                             .block_size = 32,
                             .type = type};
    EXPECT_EQ(KvBytesPerToken(MemoryNeedsOf(config), type) * 32, int64_t(layout.block_bytes_all_layers()))
        << Name(type);
  }
}

TEST(MemoryExplanationTest, SequencesAreThoseThatFitBesideTheWeights) {
  const ModelConfig config = Llama2With70B();
  // 128.48 GiB of weights leave 10.02 GiB for 8 sequences of 1.25 GiB, and nothing is left beside float32.
  const std::string text = ExplainMemory(config, 16, int64_t{277} * kGiB / 2);
  EXPECT_THAT(text, HasSubstr("\nsequences of 4096 beside the weights\n"));
  // Sequences of int8 take 660 MiB.
  const auto row = [](const char* weights, int float32, int bits16, int int8) {
    return absl::StrFormat("\n%-12s %18d %18d %18d\n", weights, float32, bits16, int8);
  };
  EXPECT_THAT(text, HasSubstr(row("16 bits", 4, 8, 15)));
  EXPECT_THAT(text, HasSubstr(row("float32", 0, 0, 0)));
  EXPECT_THAT(text, HasSubstr(row("int8", 29, 58, 114)));
}

// Matrices that are not quantized have the width that config.json names.
TEST(MemoryExplanationTest, WeightsOnACpuAreCountedAsTheyAreHeld) {
  ModelConfig config = Llama2With70B();
  const MemoryNeeds needs = MemoryNeedsOf(config);
  const int64_t others = needs.num_weights - needs.layers.weights;
  EXPECT_EQ(WeightBytesOnCpu(config, {}), 2 * needs.num_weights);
  EXPECT_EQ(WeightBytesOnCpu(config, {.layers = Quantization::kInt8}), WeightBytes(needs, WeightWidth::kInt8));
  EXPECT_EQ(WeightBytesOnCpu(config, {.layers = Quantization::kFp8}), WeightBytes(needs, WeightWidth::kFp8));
  const int64_t output = int64_t{32000} * (8192 + 4);
  EXPECT_EQ(WeightBytesOnCpu(config, {.output = true}), 2 * needs.num_weights - int64_t{2} * 32000 * 8192 + output);
  config.torch_dtype = "float32";
  EXPECT_EQ(WeightBytesOnCpu(config, {}), 4 * needs.num_weights);
  EXPECT_EQ(WeightBytesOnCpu(config, {.layers = Quantization::kInt4}),
            WeightBytes(needs, WeightWidth::kInt4) + 2 * others);
  EXPECT_EQ(WeightBytesOnCpu(config, {.output = true}), 4 * needs.num_weights - int64_t{4} * 32000 * 8192 + output);
}

// A file in Q4_K_M. A rank has the whole embedding, and its share of the other matrices.
TEST(MemoryExplanationTest, MatricesInBlocksAreCountedAsTheyAreStored) {
  ModelConfig config = Llama2With70B();
  const int64_t plain = WeightBytesOnCpu(config, {});
  StoredBlocks& blocks = config.quantization.blocks;
  blocks = {.layers = {.weights = 4096000, .bytes = 2368000},
            .embedding = {.weights = 256000, .bytes = 148000},
            .output = {.weights = 512000, .bytes = 420000},
            .types = {"Q6_K", "Q4_K"}};
  const int64_t layers = 2 * 4096000 - 2368000, embedding = 2 * 256000 - 148000, output = 2 * 512000 - 420000;
  EXPECT_EQ(WeightBytesOnCpu(config, {}), plain - layers - embedding - output);
  EXPECT_EQ(WeightBytesOnCpu(config, {.keeps_blocks = false}), plain);
  EXPECT_EQ(WeightBytesOnCpu(config, {.layers = Quantization::kInt8}),
            WeightBytesOnCpu(config, {.keeps_blocks = false, .layers = Quantization::kInt8}) - embedding - output);
  EXPECT_EQ(WeightBytesOnCpu(config, {.output = true}),
            WeightBytesOnCpu(config, {.keeps_blocks = false, .output = true}) - layers - embedding);
  const ModelConfig rank = RankOf(config, 1, 4);
  EXPECT_EQ(WeightBytesOnCpu(rank, {.keeps_blocks = false}) - WeightBytesOnCpu(rank, {}),
            layers / 4 + embedding + output / 4);
  EXPECT_EQ(HeldBlocks(config.quantization, {}), "blocks of Q4_K, Q6_K as in the file, others in ");
  EXPECT_EQ(HeldBlocks(config.quantization, {.keeps_blocks = false}), "");
  EXPECT_EQ(HeldBlocks({}, {}), "");
}

TEST(MemoryExplanationTest, TheFormOfTheWeightsIsSaidAndWhyFp8IsConverted) {
  CheckpointQuantization stored;
  EXPECT_EQ(HeldWeights(stored, Quantization::kNone, DataType::kFloat16), "float16");
  EXPECT_EQ(HeldWeights(stored, Quantization::kInt8, DataType::kFloat16), "int8");
  stored.format = CheckpointFormat::kFp8;
  EXPECT_EQ(HeldWeights(stored, Quantization::kFp8, DataType::kBFloat16), "fp8 with a scale for each row");
  EXPECT_EQ(HeldWeights(stored, Quantization::kNone, DataType::kBFloat16),
            "bfloat16, converted from FP8, which this device does not multiply");
  stored.fp8_block = {.rows = 24, .cols = 20};
  EXPECT_EQ(HeldWeights(stored, Quantization::kNone, DataType::kBFloat16),
            "bfloat16, converted from FP8 in blocks of 24 x 20, whose columns would have to be a multiple of 32 for "
            "products by FP8");
  stored.fp8_block = {.rows = 128, .cols = 64};
  EXPECT_EQ(HeldWeights(stored, Quantization::kFp8, DataType::kBFloat16), "fp8 in blocks of 128 x 64");
}

TEST(MemoryExplanationTest, AShortContextShortensTheSequencesAndBlocksAreRoundedUp) {
  ModelConfig config = Llama2With70B();
  config.max_position_embeddings = 100;
  EXPECT_THAT(ExplainMemory(config, 64, kGiB), HasSubstr("a sequence of 100 (2 blocks)"));
}

}  // namespace
}  // namespace quire
