// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/local_group.h"
#include "tests/worker/model/block_gguf.h"
#include "tests/worker/model/fp8_model.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/wide_model.h"
#include "worker/model/model.h"
#include "worker/model/shard.h"

namespace quire {
namespace {

struct RanksCase {
  std::string path;
  WeightRounding rounding = {};
  cpu::Isa isa = cpu::SupportedIsas().back();
  bool is_long = false;
};

// What one rank has computed.
struct RankRun {
  std::vector<Logits> logits;
  TensorDigests digests;
  int num_matrices_of_rows = 0;  // Last matrices of which the ranks have rows.
};

std::unique_ptr<Model> Load(const RanksCase& c, Backend* backend, int rank, int size) {
  auto model = LoadModel(c.path, backend, /*progress=*/nullptr, c.rounding, c.is_long, rank, size);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// Runs prompts in chunks of several lengths, a fork and a swap, and after them steps of two sequences.
RankRun RunRank(const RanksCase& c, int rank, int size, Collective* group) {
  const auto backend = cpu::MakeCpuBackend(1, c.isa);
  const auto model = Load(c, backend.get(), rank, size);
  RankRun run;
  if (model == nullptr) {
    if (group != nullptr) group->Abort(BackendStatus::Error("the model of rank " + std::to_string(rank)));
    return run;
  }
  run.digests = model->weights.digests;
  for (const LayerWeights& layer : model->weights.layers) {
    run.num_matrices_of_rows += int{layer.attention_output_has_rows} + int{layer.down_has_rows};
  }
  Tokens prompt;
  for (int i = 0; i < 70; ++i) prompt.push_back((i * 37 + 11) % model->config.vocab_size);
  for (const int chunk : {1, 7, 64}) {
    PagedRunner runner(
        model.get(), backend.get(),
        {.kv_type = chunk == 7 ? KvType::kInt8 : KvType::kBFloat16, .placement_seed = static_cast<uint32_t>(chunk)},
        group);
    const Tokens beginning(prompt.begin(), prompt.begin() + (chunk == 64 ? 70 : 3 * chunk + 9));
    std::vector<Logits> logits = runner.Prefill(0, beginning, chunk);
    runner.Fork(0, 1);
    runner.Swap(0);
    for (int i = 0; i < 6; ++i) {
      const int32_t token = ArgMax(logits.back());
      for (Logits& row : runner.Run({{0, {token}}, {1, {(token + 1) % model->config.vocab_size}}})) {
        logits.push_back(std::move(row));
      }
    }
    std::ranges::move(logits, std::back_inserter(run.logits));
  }
  return run;
}

std::vector<RankRun> RunRanks(const RanksCase& c, int size) {
  LocalGroup group(size);
  std::vector<RankRun> runs(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { runs[rank] = RunRank(c, rank, size, group.collective(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

int64_t CountDifferent(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a[i].size(); ++k) count += std::memcmp(&a[i][k], &b[i][k], sizeof(float)) != 0 ? 1 : 0;
  }
  return count;
}

int64_t CountLogits(const std::vector<Logits>& logits) {
  return logits.empty() ? 0 : static_cast<int64_t>(logits.size() * logits.front().size());
}

// The number of logits that tests have compared.
int64_t num_compared = 0;

// Expects that the ranks of groups of these sizes have the bits and the fingerprint of one rank. Returns the number of
// last matrices of which the ranks of the last group have rows.
int ExpectSameBits(const RanksCase& c, const std::vector<int>& sizes) {
  const auto backend = cpu::MakeCpuBackend(1, c.isa);
  const RankRun one = RunRank(c, 0, 1, nullptr);
  int num_matrices_of_rows = 0;
  for (const int size : sizes) {
    const std::vector<RankRun> ranks = RunRanks(c, size);
    TensorDigests joined = ranks[0].digests;
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(CountDifferent(ranks[rank].logits, one.logits), 0)
          << "rank " << rank << " of " << size << ", " << CountLogits(one.logits) << " logits";
      num_compared += CountLogits(ranks[rank].logits);
      EXPECT_TRUE(joined.Join(ranks[rank].digests).ok());
      EXPECT_TRUE(size == 1 || ranks[rank].digests.fingerprint().empty()) << "a rank digests a part of the tensors";
    }
    EXPECT_EQ(joined.fingerprint(), one.digests.fingerprint()) << size << " ranks";
    num_matrices_of_rows = ranks[0].num_matrices_of_rows;
  }
  return num_matrices_of_rows;
}

class ModelRanksTest : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    std::cout << num_compared << " logits of ranks have been compared with the logits of one rank" << std::endl;
  }
};

std::vector<std::string> GoldenModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenModel(""))) {
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsLong(const std::string& name) {
  return name.ends_with("_long");
}

INSTANTIATE_TEST_SUITE_P(, ModelRanksTest, testing::ValuesIn(GoldenModels()),
                         [](const auto& info) { return info.param; });

// Four ranks, because two cannot add in a wrong order.
TEST_P(ModelRanksTest, WideModelHasTheBitsOfOneRank) {
  const TestDirectory directory;
  WriteWideModel(GetParam(), 2048, directory);
  const RanksCase c = {.path = directory.path(), .is_long = IsLong(GetParam())};
  EXPECT_EQ(ExpectSameBits(c, {2, 4}), 0) << "all last matrices have slices";
}

TEST_P(ModelRanksTest, WeightsOfFourBitsHaveTheBitsOfOneRank) {
  const TestDirectory directory;
  WriteWideModel(GetParam(), 2048, directory);
  ExpectSameBits({.path = directory.path(), .rounding = {.layers = Quantization::kInt4}, .is_long = IsLong(GetParam())},
                 {4});
}

TEST_P(ModelRanksTest, WeightsOfEightBitsHaveTheBitsOfOneRank) {
  const TestDirectory directory;
  WriteWideModel(GetParam(), 2048, directory);
  const RanksCase c = {.path = directory.path(),
                       .rounding = {.layers = Quantization::kInt8, .output = true},
                       .is_long = IsLong(GetParam())};
  EXPECT_GT(ExpectSameBits(c, {4}), 0) << "an input of int8 has one scale for all columns";
}

// The golden models have no slices, so their ranks have rows of all last matrices.
TEST_P(ModelRanksTest, ModelWithoutSlicesHasTheBitsOfOneRank) {
  EXPECT_GT(ExpectSameBits({.path = GoldenModel(GetParam()), .is_long = IsLong(GetParam())}, {2}), 0);
}

// The most ranks, with each set of instructions. Two of them share a KV head.
TEST(WideModelRanksTest, EightRanksHaveTheBitsOfOneRank) {
  const TestDirectory directory;
  WriteWideModel("qwen2", 8192, directory);
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    SCOPED_TRACE(Name(isa));
    EXPECT_EQ(ExpectSameBits({.path = directory.path(), .isa = isa}, {2, 4, 8}), 0);
  }
}

TEST(WideModelRanksTest, TwoRanksHaveTheBitsOfOneRank) {
  const TestDirectory directory;
  WriteWideModel("qwen2", 2048, directory);
  ExpectSameBits({.path = directory.path()}, {2});
}

TEST(WideModelRanksTest, WeightsOfFp8HaveTheBitsOfOneRank) {
  make_model::ModelShape shape;
  shape.dim = 128;
  shape.heads = 32;
  shape.kv_heads = 4;
  shape.head_dim = 64;
  shape.ffn = 2048;
  ASSERT_EQ(Complete(&shape), "");
  for (const int block : {0, 128}) {
    const TestDirectory directory;
    WriteFp8Model(shape, block, directory);
    const int num_matrices_of_rows = ExpectSameBits({.path = directory.path()}, {2, 4});
    const auto backend = cpu::MakeCpuBackend(1, cpu::SupportedIsas().back());
    // A row of one scale is one group of columns, which cannot be divided.
    EXPECT_EQ(num_matrices_of_rows > 0, block == 0 && backend->MultipliesFp8()) << "blocks of " << block;
  }
}

// Several types in one product, and four slices of 512 columns. More ranks have rows in place of columns. So have two
// of an MLP whose slices of 1152 columns would not be whole blocks.
TEST(WideModelRanksTest, BlocksOfGgufFilesHaveTheBitsOfOneRank) {
  for (const int ffn : {2048, 2304}) {
    const TestDirectory directory;
    directory.Write("model.gguf",
                    BlockGguf{.ffn = ffn,
                              .heads = 64,
                              .kv_heads = 8,
                              .layers = 1,
                              .other_types = {{"attn_v", "Q6_K"}, {"ffn_down", "Q6_K"}, {"attn_output", "Q5_K"}}}
                        .File());
    for (const cpu::Isa isa : cpu::SupportedIsas()) {
      SCOPED_TRACE(Name(isa));
      const RanksCase c = {.path = directory.path() + "/model.gguf", .isa = isa};
      const bool has_blocks = cpu::MakeCpuBackend(1, isa)->MultipliesBlocks();
      EXPECT_EQ(ExpectSameBits(c, {2, 4}), has_blocks && ffn == 2304 ? 1 : 0);
      if (ffn == 2048) {
        EXPECT_EQ(ExpectSameBits(c, {8}), 2);
      }
    }
  }
}

std::string ErrorOf(const std::string& name, int rank, int size) {
  const auto backend = cpu::MakeCpuBackend(1, cpu::SupportedIsas().front());
  const auto model =
      LoadModel(GoldenModel(name), backend.get(), /*progress=*/nullptr, {}, /*is_long=*/false, rank, size);
  return std::string(model.status().message());
}

TEST(ModelRanksErrorTest, RefusalsNameBothNumbers) {
  EXPECT_THAT(ErrorOf("llama2", 0, 3), testing::HasSubstr("a model on 3 ranks; there may be 1, 2, 4 or 8"));
  EXPECT_THAT(ErrorOf("llama2", 2, 2), testing::HasSubstr("rank 2 of 2 ranks; it must be in [0, 2)"));
  EXPECT_THAT(ErrorOf("llama2", 0, 8),
              testing::HasSubstr("the model has 4 heads of attention, which 8 ranks do not divide"));
  EXPECT_THAT(ErrorOf("olmo2", 0, 4),
              testing::HasSubstr("the model norms its 2 KV heads together, so they cannot be on "
                                 "4 ranks; there may be at most as many ranks as KV heads"));
}

ModelConfig ConfigOf(int heads, int kv_heads, int hidden, int width, int vocab) {
  ModelConfig config{};
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.hidden_size = hidden;
  config.intermediate_size = width;
  config.vocab_size = vocab;
  config.layers.resize(1);
  return config;
}

TEST(ShardTest, RefusesWhatTheRanksDoNotDivide) {
  const auto error = [](const ModelConfig& config, int size) {
    return std::string(ShardOf(config, 0, size).status().message());
  };
  EXPECT_EQ(error(ConfigOf(8, 3, 64, 128, 100), 2), "the model has 3 KV heads, which 2 ranks do not divide");
  EXPECT_EQ(error(ConfigOf(8, 4, 63, 128, 100), 2),
            "the model has 63 dimensions (hidden_size), which 2 ranks do not divide");
  EXPECT_EQ(error(ConfigOf(8, 4, 64, 126, 100), 4),
            "the model has 126 columns in its MLP (intermediate_size), which 4 ranks do not divide");
  EXPECT_EQ(error(ConfigOf(8, 4, 64, 128, 9), 8), "the vocabulary has 9 tokens, too few for 8 ranks");
  ModelConfig moe = ConfigOf(8, 4, 64, 128, 100);
  moe.moe.router.num_experts = 3;
  EXPECT_EQ(error(moe, 4), "the model has 3 experts, fewer than the 4 ranks");
}

TEST(ShardTest, RanksHaveAdjacentPartsOfTheWhole) {
  const ModelConfig whole = ConfigOf(16, 2, 64, 128, 101);
  int next_token = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto shard = ShardOf(whole, rank, 4);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(shard->num_heads, 4);
    EXPECT_EQ(shard->num_kv_heads, 1);
    EXPECT_EQ(FirstKvHead(*shard), rank / 2) << "adjacent ranks share a KV head";
    EXPECT_EQ(shard->intermediate_size, 32);
    EXPECT_EQ(OwnVocabulary(*shard).begin, next_token);
    next_token = OwnVocabulary(*shard).end;
    EXPECT_EQ(WholeOf(*shard).num_kv_heads, 2);
  }
  EXPECT_EQ(next_token, 101);
}

TEST(ShardTest, RanksHaveWholeRangesOfExperts) {
  ModelConfig whole = ConfigOf(16, 2, 64, 128, 101);
  whole.moe.router.num_experts = 60;  // A range has 7 or 8 experts.
  int next_expert = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const IndexRange own = OwnExperts(*ShardOf(whole, rank, 4));
    EXPECT_EQ(own.begin, next_expert);
    EXPECT_EQ(own.size(), 15);
    next_expert = own.end;
  }
  EXPECT_EQ(next_expert, 60);
}

}  // namespace
}  // namespace quire
