// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/random_tensor.h"
#include "tools/make_model/safetensors_writer.h"
#include "tools/make_model/tokenizer_files.h"
#include "worker/model/model.h"

namespace quire::make_model {
namespace {

ModelShape Tiny(const std::string& family) {
  ModelShape shape = *Preset("tiny");
  shape.family = family;
  EXPECT_EQ(Complete(&shape), "");
  return shape;
}

void Write(const ModelShape& shape, DataType type, uint64_t seed, const TestDirectory& directory) {
  directory.Write("config.json", ConfigJson(shape, Name(type)));
  const absl::Status status = WriteRandomTensors(TensorsOf(shape), type, seed, directory.path() + "/model.safetensors");
  ASSERT_TRUE(status.ok()) << status;
}

TEST(MakeModelTest, EveryFamilyAndTypeLoadsAndRuns) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe"}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
      const TestDirectory directory;
      Write(Tiny(family), type, 1, directory);
      const auto model = LoadModel(directory.path(), backend.get());
      ASSERT_TRUE(model.ok()) << family << ": " << model.status();
      PagedRunner runner(model->get(), backend.get(), {});
      const Logits logits = runner.Prefill(0, {0, 70, 80}, 64).back();
      double sum = 0;
      for (const float logit : logits) sum += logit * logit;
      const double deviation = std::sqrt(sum / static_cast<double>(logits.size()));
      EXPECT_GT(deviation, 1.0) << family;
      EXPECT_LT(deviation, 9.0) << family;
    }
  }
}

// The sum of the tensors of Qwen3-30B-A3B on the hub.
TEST(MakeModelTest, ThePresetWithExpertsHasTheNumberOfItsWeights) {
  ModelShape shape = *Preset("qwen30b_a3b");
  ASSERT_EQ(Complete(&shape), "");
  int64_t num_weights = 0;
  for (const TensorSpec& spec : TensorsOf(shape)) num_weights += spec.size();
  EXPECT_EQ(num_weights, 30'532'122'624);
}

TEST(MakeModelTest, EqualSeedsGiveEqualFiles) {
  const TestDirectory first;
  const TestDirectory second;
  const TestDirectory other;
  Write(Tiny("llama"), DataType::kBFloat16, 1, first);
  Write(Tiny("llama"), DataType::kBFloat16, 1, second);
  Write(Tiny("llama"), DataType::kBFloat16, 2, other);
  const std::string weights = ReadWholeFile(first.path() + "/model.safetensors");
  EXPECT_EQ(ReadWholeFile(second.path() + "/model.safetensors"), weights);
  EXPECT_NE(ReadWholeFile(other.path() + "/model.safetensors"), weights);
}

// The authors of Philox publish the first numbers for a key and counter of zero: 6627e8d5 e169c58d ...
TEST(MakeModelTest, NumbersAreThoseOfPhilox) {
  float values[4];
  RandomTensor(0, 0, 0.5, 0.5).Group(0, values);
  EXPECT_FLOAT_EQ(values[0], static_cast<float>(0x6627e8d5 * 0x1p-32));
  EXPECT_FLOAT_EQ(values[1], static_cast<float>(0xe169c58d * 0x1p-32));
}

TEST(MakeModelTest, EveryIdOfTheTokenizerIsUsedOnce) {
  const auto tokenizer = nlohmann::json::parse(TokenizerJson(300));
  std::vector<int> uses(300);
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) ++uses.at(id.get<int>());
  for (const int count : uses) EXPECT_EQ(count, 1);
  EXPECT_EQ(tokenizer["model"]["vocab"]["A"], kFirstByteToken + 'A');
  EXPECT_EQ(tokenizer["model"]["vocab"]["\u0120"], kFirstByteToken + ' ');
  EXPECT_EQ(tokenizer["model"]["vocab"]["\u0120w299"], 299);
}

TEST(MakeModelTest, ASmallVocabularyHasNoTokenizer) {
  EXPECT_FALSE(HasTokenizer(257));
  EXPECT_TRUE(HasTokenizer(258));
}

TEST(MakeModelTest, OddShapesAreRefusedByFlag) {
  ModelShape shape = *Preset("tiny");
  shape.kv_heads = 3;
  EXPECT_EQ(Complete(&shape), "--kv_heads is 3, must divide --heads, 4");
  shape = *Preset("tiny");
  shape.family = "gpt2";
  EXPECT_EQ(Complete(&shape), "--family is gpt2, must be llama, mistral, qwen2, qwen3 or qwen3_moe");
  shape = *Preset("tiny");
  shape.layers = 0;
  EXPECT_EQ(Complete(&shape), "--layers is 0, must be in 1 .. 1048576");
  shape = *Preset("tiny");
  shape.dim = 65;
  EXPECT_EQ(Complete(&shape), "--head_dim is 0, must be even and positive, or --dim a multiple of --heads");
  shape = *Preset("tiny");
  shape.experts = 8;
  EXPECT_EQ(Complete(&shape), "--experts, --experts_per_token and --expert_ffn are for --family=qwen3_moe");
  shape.family = "qwen3_moe";
  shape.experts_per_token = 9;
  EXPECT_EQ(Complete(&shape), "--experts_per_token is 9, must be in 1 .. 8");
  EXPECT_FALSE(Preset("m501").has_value());
}

}  // namespace
}  // namespace quire::make_model
