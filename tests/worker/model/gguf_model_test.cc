// SPDX-License-Identifier: Apache-2.0

// Models in GGUF files. tests/golden/gguf has small ones with what transformers computes from them.

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/half_float.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/gguf_writer.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/small_gguf.h"
#include "worker/model/checkpoint.h"
#include "worker/model/gguf.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gguf_types.h"
#include "worker/model/model.h"
#include "worker/model/rope_scaling.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string GoldenGguf(const std::string& name) {
  return SourcePath("tests/golden/gguf/" + name);
}

std::vector<Logits> LogitsOf(const Model& model, const Tokens& prompt) {
  const auto backend = MakeCpuBackend(1);
  PagedRunner runner(&model, backend.get(), {});
  return runner.Prefill(0, prompt, 64);
}

// The golden has the logits of the last tokens of its prompt, at least.
void ExpectRunOf(const std::string& path, const json& golden) {
  SCOPED_TRACE(path);
  const auto backend = MakeCpuBackend(1);
  const auto model = LoadModel(path, backend.get());
  ASSERT_TRUE(model.ok()) << model.status();
  PagedRunner runner(model->get(), backend.get(), {});
  const std::vector<Logits> logits = runner.Prefill(0, golden["prompt"].get<Tokens>(), 64);
  const auto expected = golden["logits"].get<std::vector<Logits>>();
  ASSERT_GE(logits.size(), expected.size());
  const size_t first = logits.size() - expected.size();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(RelativeError(logits[first + i], expected[i]), 1e-3f) << i;
  const auto greedy = golden["greedy"].get<Tokens>();
  EXPECT_EQ(runner.Greedy(0, logits.back(), static_cast<int>(greedy.size())), greedy);
}

TEST(GgufModelTest, LogitsAndGreedyTokensEqualThoseOfTransformers) {
  for (const char* const file : {"models.json", "further_models.json"}) {
    const json goldens = json::parse(ReadWholeFile(GoldenGguf(file)));
    for (const auto& [name, golden] : goldens.items()) ExpectRunOf(GoldenGguf(name + ".gguf"), golden);
  }
}

// The experts have the same bits in both files. transformer_test.cc compares the other one with transformers.
TEST(GgufModelTest, GptOssIsThatOfItsSafetensors) {
  const std::string directory = SourcePath("tests/golden/models/gpt_oss_mxfp4");
  const auto backend = MakeCpuBackend(1);
  const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4};
  for (const bool keeps_blocks : {true, false}) {
    const WeightRounding rounding = {.keeps_blocks = keeps_blocks};
    const auto model = LoadModel(GoldenGguf("gpt_oss_mxfp4.gguf"), backend.get(), nullptr, rounding);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto same = LoadModel(directory, backend.get(), nullptr, rounding);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ((*model)->weights.rounding.keeps_blocks, keeps_blocks && backend->MultipliesBlocks());
    EXPECT_EQ(LogitsOf(**model, prompt), LogitsOf(**same, prompt));
  }
}

// In an answer of gpt-oss, this text ends a message and others follow.
TEST(GgufModelTest, AnEndOfAMessageEndsNoAnswerOfGptOss) {
  const std::string file = ReadWholeFile(GoldenGguf("gpt_oss_mxfp4.gguf"));
  const auto ends_with = [&](const std::vector<std::string_view>& texts) {
    GgufContents contents = *ParseGguf(file, "m.gguf");
    std::string types;
    for (size_t i = 0; i < texts.size(); ++i) types += GgufWriter::Bytes(int32_t{3});
    contents.metadata["tokenizer.ggml.tokens"] = {
        .type = GgufType::kString, .is_array = true, .count = texts.size(), .bytes = {}, .strings = texts};
    contents.metadata["tokenizer.ggml.token_type"] = {
        .type = GgufType::kInt32, .is_array = true, .count = texts.size(), .bytes = types, .strings = {}};
    return json::parse(*GgufConfigJson(contents))["eos_token_id"].get<std::set<int>>();
  };
  EXPECT_EQ(ends_with({"<|return|>", "a", "b", "<|call|>", "<|end|>"}), (std::set<int>{0, 2, 3}));
  EXPECT_EQ(ends_with({"<|return|>", "a", "b", "c", "<|end|>"}), (std::set<int>{0, 2, 4}));
}

// The program that divides files is llama-gguf-split.
TEST(GgufModelTest, AModelInSeveralPartsIsThatInOneFile) {
  const json goldens = json::parse(ReadWholeFile(GoldenGguf("models.json")));
  const std::string path = GoldenGguf("parts-00001-of-00003.gguf");
  ExpectRunOf(path, goldens["qwen2"]);
  const auto backend = MakeCpuBackend(1);
  EXPECT_EQ((*LoadModel(path, backend.get()))->weights.fingerprint,
            (*LoadModel(GoldenGguf("qwen2.gguf"), backend.get()))->weights.fingerprint);
  EXPECT_EQ(Checkpoint::Open(path)->num_files(), 3);
}

TEST(GgufModelTest, PartsThatDoNotFitTogetherAreRefused) {
  TestDirectory directory;
  const auto part = [](int number) {
    return ReadWholeFile(GoldenGguf(absl::StrCat("parts-0000", number, "-of-00003.gguf")));
  };
  const auto name = [&](int number) { return absl::StrCat("m-0000", number, "-of-00003.gguf"); };
  const auto error = [&](const std::string& file) {
    return std::string(ReadModelConfig(absl::StrCat(directory.path(), "/", file)).status().message());
  };
  directory.Write(name(1), part(1));
  directory.Write(name(2), part(2));
  EXPECT_THAT(error(name(1)), HasSubstr("m-00003-of-00003.gguf"));
  EXPECT_EQ(error(name(2)), absl::StrCat(directory.path(), "/", name(2),
                                         ": split.no is 1, must be 0: the model is opened by its first part, whose "
                                         "name ends in -00001-of-00003.gguf"));
  directory.Write(name(3), part(2));
  EXPECT_EQ(error(name(1)),
            absl::StrCat(directory.path(), "/", name(3), ": split.no is 1 and split.count is 3, must be 2 and 3"));
  directory.Write("whole.gguf", part(1));
  EXPECT_EQ(error("whole.gguf"), absl::StrCat(directory.path(),
                                              "/whole.gguf: split.count is 3, so the name must end in "
                                              "-00001-of-00003.gguf"));
  std::string more = part(1);
  const std::string key = "split.tensors.count";
  const std::string count = GgufWriter::Bytes(int32_t{27});
  more.replace(more.find(key) + key.size() + sizeof(GgufType), count.size(), count);
  directory.Write(name(1), more);
  directory.Write(name(3), part(3));
  EXPECT_THAT(error(name(1)), HasSubstr("split.tensors.count is 27, but the 3 parts have 26 tensors"));
}

// Of published files, as their converter writes them.
TEST(GgufModelTest, TheScaleOfScoresOfTheLargestGemmaIsNarrower) {
  const auto scale_of = [](const std::string& file, uint32_t layers, uint32_t heads) {
    std::string changed = ReadWholeFile(GoldenGguf(file));
    const auto set = [&](const std::string& key, uint32_t value) {
      const std::string bytes = GgufWriter::Bytes(value);
      changed.replace(changed.find(key) + key.size() + sizeof(GgufType), bytes.size(), bytes);
    };
    set(".block_count", layers);
    set(".attention.head_count", heads);
    const auto contents = ParseGguf(changed, file);
    EXPECT_TRUE(contents.ok()) << contents.status();
    return json::parse(*GgufConfigJson(*contents))["query_pre_attn_scalar"].get<int>();
  };
  EXPECT_EQ(scale_of("gemma2.gguf", 42, 4), 8) << "head_dim";
  EXPECT_EQ(scale_of("gemma2.gguf", 46, 4), 6) << "hidden_size / num_heads";
}

TEST(GgufModelTest, TheConfigurationIsThatOfTheMetadata) {
  const auto config = ReadModelConfig(GoldenGguf("qwen3.gguf"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->intermediate_size, 64);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocab_size, 64);
  EXPECT_EQ(config->max_position_embeddings, 256);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->torch_dtype, "float16");
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->eos_token_ids, std::vector<TokenId>{2});
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_TRUE(ReadModelConfig(GoldenGguf("qwen2.gguf"))->tie_word_embeddings) << "without output.weight";
  EXPECT_FALSE(ReadModelConfig(GoldenGguf("llama.gguf"))->qkv_bias);
  const auto experts = ReadModelConfig(GoldenGguf("qwen3moe.gguf"));
  ASSERT_TRUE(experts.ok()) << experts.status();
  EXPECT_EQ(experts->moe.router.num_experts, 8);
  EXPECT_EQ(experts->moe.router.top_k, 3);
  EXPECT_TRUE(experts->moe.router.normalizes);
  EXPECT_EQ(experts->moe.width, 16);
  EXPECT_EQ(experts->torch_dtype, "float16");
}

// A file of one layer whose metadata and tensors a test can change.
class SmallGgufTest : public testing::Test, protected SmallGguf {
 protected:
  SmallGgufTest() : backend_(MakeCpuBackend(1)) { SetLogLevel(LogLevel::kError); }
  ~SmallGgufTest() override { SetLogLevel(LogLevel::kInfo); }

  std::string FileWith(uint32_t matrix_type, const std::function<std::string(int rows, int cols)>& store,
                       const std::function<void(GgufWriter*)>& more = nullptr,
                       const std::string& architecture = "llama") {
    return SmallGguf::File(matrix_type, store, &random_, more, architecture);
  }

  std::string PlainFile(const std::function<void(GgufWriter*)>& more = nullptr,
                        const std::string& architecture = "llama") {
    return FileWith(
        0, [&](int rows, int cols) { return RandomFloats(rows * cols, 0.1f); }, more, architecture);
  }

  std::string RandomFloats(int count, float scale) { return SmallGguf::RandomFloats(count, scale, &random_); }

  absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& file, Quantization quantize = Quantization::kNone) {
    directory_.Write("model.gguf", file);
    return LoadModel(directory_.path() + "/model.gguf", backend_.get(), nullptr,
                     {.keeps_blocks = false, .layers = quantize});
  }

  // Returns the error without the path of the file.
  std::string ErrorOfLoad(const std::string& file) {
    const auto model = Load(file);
    EXPECT_FALSE(model.ok());
    const std::string message(model.status().message());
    const std::string path = directory_.path() + "/model.gguf: ";
    EXPECT_EQ(message.substr(0, path.size()), path);
    return message.substr(std::min(path.size(), message.size()));
  }

  const std::unique_ptr<Backend> backend_;
  const TestDirectory directory_;
  std::mt19937 random_{11};
};

// The same numbers, once quantized and once as they are after dequantizing. gguf_blocks_test.cc tests products by the
// numbers as they are stored.
TEST_F(SmallGgufTest, AQuantizedFileComputesAsTheFileOfItsNumbers) {
  const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  for (const char* name : {"Q8_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"}) {
    SCOPED_TRACE(name);
    random_.seed(11);
    const GgufTensorType& type = *FindGgufTensorType(std::string_view(name));
    std::vector<std::string> matrices;
    const std::string quantized = FileWith(type.number, [&](int rows, int cols) {
      std::string bytes(size_t(rows) * cols / type.block_elements * type.block_bytes, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random_());
      // Small scales, wherever a block has them, keep the numbers in the range of float16.
      for (size_t at = 0; at < bytes.size(); at += type.block_bytes) {
        const auto scale = [&] { return static_cast<float>(random_() % 100 + 1) * 2e-6f; };
        const float first = scale(), second = scale();
        // A block of Q4_1 or Q5_1 begins like one of Q4_K.
        const BlockType block = FindBlockType(name).value_or(name[3] == '0' ? BlockType::kQ8_0 : BlockType::kQ4_K);
        SetBlockScale(block, first, second, reinterpret_cast<uint8_t*>(&bytes[at]));
      }
      const OwnedTensor plain = DequantizeGgufTensor({"", type.name, {rows, cols}, bytes});
      matrices.emplace_back(plain.tensor.bytes);
      return bytes;
    });
    random_.seed(11);
    size_t next = 0;
    const uint32_t plain_type = kDequantizedType == DataType::kFloat16 ? 1 : 30;
    const std::string plain = FileWith(plain_type, [&](int, int) { return matrices[next++]; });
    const auto stored = Load(quantized);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ((*stored)->weights.rounding.layers, Quantization::kNone);
    EXPECT_EQ((*stored)->config.torch_dtype, "bfloat16") << "which is the type of K and V";
    const auto expected = Load(plain);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(LogitsOf(**stored, prompt), LogitsOf(**expected, prompt));
    for (const Quantization width : {Quantization::kInt8, Quantization::kInt4}) {
      const auto rounded = Load(quantized, width), rounded_plain = Load(plain, width);
      ASSERT_TRUE(rounded.ok()) << rounded.status();
      EXPECT_EQ((*rounded)->weights.rounding.layers, width);
      EXPECT_EQ(LogitsOf(**rounded, prompt), LogitsOf(**rounded_plain, prompt));
    }
  }
}

// With inputs in float32, the only difference to a file of float32 is the order of sums. One of the architectures has
// experts.
TEST_F(SmallGgufTest, MatricesOfQ4AreMultipliedAsTheyAre) {
  const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  for (const char* architecture : {"llama", "qwen3moe"}) {
    SCOPED_TRACE(architecture);
    std::vector<std::string> floats;
    random_.seed(11);
    const std::string quantized = FileWith(
        2,
        [&](int rows, int cols) {
          Q4Matrix matrix = RandomQ4(rows, cols, &random_);
          floats.push_back(std::move(matrix.floats));
          return matrix.blocks;
        },
        nullptr, architecture);
    random_.seed(11);
    size_t next = 0;
    const auto plain = Load(FileWith(
        0, [&](int, int) { return floats[next++]; }, nullptr, architecture));
    ASSERT_TRUE(plain.ok()) << plain.status();
    const std::vector<Logits> expected = LogitsOf(**plain, prompt);
    directory_.Write("model.gguf", quantized);
    const auto load = [&](Quantization quantize, Int4Inputs inputs) {
      return LoadModel(directory_.path() + "/model.gguf", backend_.get(), nullptr,
                       {.layers = quantize, .int4_inputs = inputs});
    };
    const auto exact = load(Quantization::kNone, Int4Inputs::kFloat32);
    ASSERT_TRUE(exact.ok()) << exact.status();
    EXPECT_EQ((*exact)->weights.rounding.layers, Quantization::kInt4);
    const auto rounding = load(Quantization::kNone, Int4Inputs::kInt8);
    const std::vector<Logits> exact_logits = LogitsOf(**exact, prompt), rounded_logits = LogitsOf(**rounding, prompt);
    for (size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_LT(RelativeError(exact_logits[i], expected[i]), 1e-4f);
      EXPECT_LT(RelativeError(rounded_logits[i], expected[i]), 0.1f);
    }
    const auto int8 = load(Quantization::kInt8, Int4Inputs::kInt8);
    ASSERT_TRUE(int8.ok()) << "--quantize rounds the dequantized matrices: " << int8.status();
    EXPECT_EQ((*int8)->weights.rounding.layers, Quantization::kInt8);
  }
}

TEST_F(SmallGgufTest, ExpertsThatDoNotFitAreNamedAsInTheFile) {
  const auto error_with = [&](const std::function<void(GgufWriter*)>& more) {
    return ErrorOfLoad(PlainFile(more, "qwen3moe"));
  };
  ASSERT_TRUE(Load(PlainFile(nullptr, "qwen3moe")).ok());
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddUint32("qwen3moe.expert_shared_count", 1); }),
            "qwen3moe.expert_shared_count is 1, must be absent: it is not supported");
  std::string file = PlainFile(nullptr, "qwen3moe");
  const std::string key = "qwen3moe.expert_used_count";
  const size_t at = file.find(key) + key.size() + sizeof(uint32_t);  // Behind the type of the value.
  file[at] = 5;
  EXPECT_EQ(ErrorOfLoad(file), "qwen3moe.expert_used_count is 5, must be an integer in 1 .. 4");
  file = PlainFile(nullptr, "qwen3moe");
  const std::string count = "qwen3moe.expert_count";
  file[file.find(count) + count.size() + sizeof(uint32_t)] = 3;
  EXPECT_EQ(ErrorOfLoad(file),
            "tensor blk.0.ffn_gate_exps.weight is F32 [4, 64, 256], expected 3 matrices, one for each expert");
  file = PlainFile(nullptr, "qwen3moe");
  file.replace(file.find("ffn_up_exps"), 11, "ffn_gp_exps");
  EXPECT_EQ(ErrorOfLoad(file),
            "tensor \"blk.0.ffn_gp_exps.weight\" of the architecture qwen3moe with 1 layers is not "
            "supported");
}

// Returns the numbers of float32 after they have been rounded to bfloat16.
std::string RoundedToBFloat16(const std::string& floats) {
  std::string rounded;
  for (size_t at = 0; at < floats.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, &floats[at], sizeof(value));
    rounded += GgufWriter::Bytes(ToFloat(ToBFloat16(value)));
  }
  return rounded;
}

// A file may store one matrix of a stack, such as V, with more bits. Then Q and K become bfloat16. Products keep their
// inputs in float32, so the only other difference is the order of sums.
TEST_F(SmallGgufTest, AStackOfSeveralTypesIsDequantized) {
  std::vector<std::string> floats;
  const std::string quantized = FileWith(2, [&](int rows, int cols) {
    Q4Matrix matrix = RandomQ4(rows, cols, &random_);
    floats.push_back(std::move(matrix.floats));
    return matrix.blocks;
  });
  const auto contents = ParseGguf(quantized, "model.gguf");
  ASSERT_TRUE(contents.ok());
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  for (const auto& [key, field] : contents->metadata) {
    if (key != "general.architecture") writer.Add(key, field.type, std::string(field.bytes));
  }
  for (const Tensor& tensor : contents->tensors) {
    if (tensor.name != "blk.0.attn_v.weight") {
      writer.AddTensor(tensor.name, tensor.dtype == "F32" ? 0 : 2, tensor.shape, tensor.bytes);
    } else {
      floats[2] = RandomFloats(kKvHeads * kHeadDim * kHidden, 0.1f);
      writer.AddTensor(tensor.name, 0, tensor.shape, floats[2]);
    }
  }
  directory_.Write("model.gguf", writer.File());
  const auto model = LoadModel(directory_.path() + "/model.gguf", backend_.get(), /*progress=*/nullptr,
                               {.int4_inputs = Int4Inputs::kFloat32});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.rounding.layers, Quantization::kInt4);
  const PlainStacks& plain_stacks = (*model)->config.quantization.plain_stacks;
  EXPECT_EQ(plain_stacks.qkv, 1);
  EXPECT_EQ(plain_stacks.attention_output + plain_stacks.gate_up + plain_stacks.down, 0);

  for (const int i : {0, 1}) floats[i] = RoundedToBFloat16(floats[i]);
  random_.seed(11);
  size_t next = 0;
  const auto plain = Load(FileWith(0, [&](int, int) { return floats[next++]; }));
  ASSERT_TRUE(plain.ok()) << plain.status();
  const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  const std::vector<Logits> logits = LogitsOf(**model, prompt), expected = LogitsOf(**plain, prompt);
  for (size_t i = 0; i < prompt.size(); ++i) EXPECT_LT(RelativeError(logits[i], expected[i]), 1e-4f) << i;
}

TEST_F(SmallGgufTest, AScaleOfQ4ThatIsNotFiniteIsNamed) {
  const std::string file = FileWith(2, [&](int rows, int cols) {
    std::string blocks = RandomQ4(rows, cols, &random_).blocks;
    blocks[18 * 9] = 0;
    blocks[18 * 9 + 1] = 0x7c;
    return blocks;
  });
  EXPECT_EQ(ErrorOfLoad(file), "tensor blk.0.attn_q.weight has a scale of row 1 that is infinite or not a number")
      << "the rows of a pair are neighbours in the file";
}

TEST_F(SmallGgufTest, AnotherArchitectureIsRefusedByItsName) {
  EXPECT_EQ(ErrorOfLoad(PlainFile(nullptr, "apertus")),
            absl::StrCat("general.architecture is \"apertus\", must be ", GgufArchitectures(),
                         "; as safetensors this works (ApertusForCausalLM); docs/serving.md#models lists the supported "
                         "models"));
  const auto error = [&](const char* architecture, const char* key, uint32_t value) {
    return ErrorOfLoad(PlainFile([&](GgufWriter* writer) { writer->AddUint32(key, value); }, architecture));
  };
  EXPECT_EQ(error("qwen2moe", "qwen2moe.expert_count", 60),
            absl::StrCat("general.architecture is \"qwen2moe\", must be ", GgufArchitectures(),
                         "; qwen2moe.expert_count is 60: this mixture of experts is not supported; "
                         "docs/serving.md#models lists the supported models"));
  EXPECT_THAT(error("mamba2", "mamba2.ssm.state_size", 128),
              HasSubstr("; mamba2.ssm.state_size is 128: layers with a recurrent state are not supported"));
  EXPECT_THAT(error("bert", "bert.pooling_type", 1), HasSubstr("; bert.pooling_type is 1: encoders are not supported"));
  EXPECT_THAT(error("apertus", "apertus.expert_count", 8), Not(HasSubstr("as safetensors")));
  EXPECT_THAT(error("falcon", "falcon.expert_count", 0),
              HasSubstr("command-r, cohere2 or gpt-oss; docs/serving.md#models lists"));
}

TEST_F(SmallGgufTest, WhatWouldChangeTheComputationIsRefused) {
  const auto error_with = [&](const std::function<void(GgufWriter*)>& more) { return ErrorOfLoad(PlainFile(more)); };
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddUint32("llama.expert_count", 8); }),
            "llama.expert_count is 8, must be absent: this mixture of experts is not supported");
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddBool("llama.attention.causal", false); }),
            "llama.attention.causal is false, must be true");
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddUint32("llama.rope.dimension_count", 16); }),
            "llama.rope.dimension_count is 16, must be 32");
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddUint32("llama.attention.value_length", 64); }),
            "llama.attention.value_length is 64, must be 32");
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddString("llama.rope.scaling.type", "longrope"); }),
            "llama.rope.scaling.type is \"longrope\", must be none, linear or yarn");
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddUint32("llama.attention.sliding_window", 8); }),
            "llama.attention.sliding_window is 8, must be absent: it is not supported");
  const auto error_of_mistral = [&](const char* key) {
    return ErrorOfLoad(PlainFile([&](GgufWriter* writer) { writer->AddFloat(key, 2); }, "mistral3"));
  };
  EXPECT_EQ(error_of_mistral("mistral3.attention.temperature_scale"),
            "mistral3.attention.temperature_scale is 2.0, must be 0");
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddFloat("llama.logit_scale", 2); }),
            "llama.logit_scale is 2.0, must be absent: it is not supported");
  EXPECT_THAT(error_with([](GgufWriter* writer) { writer->AddString("general.type", "adapter"); }),
              HasSubstr("general.type is \"adapter\""));
  EXPECT_EQ(error_with([](GgufWriter* writer) { writer->AddTensor("blk.0.ffn_gate_inp.weight", 0, {1}, "1234"); }),
            "tensor \"blk.0.ffn_gate_inp.weight\" of the architecture llama with 1 layers is not supported");
  EXPECT_THAT(error_with([](GgufWriter* writer) { writer->AddTensor("blk.1.attn_q.weight", 0, {1}, "1234"); }),
              HasSubstr("tensor \"blk.1.attn_q.weight\""))
      << "a layer that does not exist";
  EXPECT_TRUE(Load(PlainFile([](GgufWriter* writer) { writer->AddUint32("llama.expert_count", 0); })).ok());
}

TEST_F(SmallGgufTest, ErrorsNameKeysAndTensorsOfTheFile) {
  std::string file = PlainFile();
  const std::string key = "llama.attention.head_count_kv";
  const std::string value = GgufWriter::Bytes(uint32_t{3});
  file.replace(file.find(key) + key.size() + sizeof(GgufType), value.size(), value);
  EXPECT_EQ(ErrorOfLoad(file),
            "llama.attention.head_count_kv is 3, must be a divisor of llama.attention.head_count, 8");
  EXPECT_THAT(ErrorOfLoad(PlainFile(nullptr, "qwen3")), HasSubstr("tensor blk.0.attn_q_norm.weight is missing"));
  EXPECT_THAT(ErrorOfLoad(PlainFile(nullptr, "qwen2")), HasSubstr("tensor blk.0.attn_q.bias is missing"));
}

TEST_F(SmallGgufTest, TheLogSaysWhichKeyOfTheTokenizerIsMissing) {
  SetLogLevel(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Load(PlainFile()).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("the model has no tokenizer, because tokenizer.ggml.model is missing in its file"));
  EXPECT_THAT(log, testing::Not(HasSubstr("tokenizer.json")));
}

TEST_F(SmallGgufTest, AQuantizedTypeThatIsNotReadIsRefused) {
  const std::string file = FileWith(23, [](int rows, int cols) { return std::string(size_t(rows) * cols, 'x'); });
  EXPECT_THAT(Load(file).status().message(),
              HasSubstr("tensor \"blk.0.attn_q.weight\" has the type IQ4_XS, supported are F32, F16, BF16, Q8_0"));
}

TEST_F(SmallGgufTest, TheScalingsOfRotaryEmbeddingsAreRead) {
  const auto rope_with = [&](const std::function<void(GgufWriter*)>& more) {
    const auto model = Load(PlainFile(more));
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->config.rope;
  };
  EXPECT_EQ(rope_with([](GgufWriter*) {}).type, RopeType::kDefault);
  const RopeConfig linear = rope_with([](GgufWriter* writer) { writer->AddFloat("llama.rope.scaling.factor", 4); });
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 4);
  const RopeConfig old = rope_with([](GgufWriter* writer) { writer->AddFloat("llama.rope.scale_linear", 2); });
  EXPECT_EQ(old.type, RopeType::kLinear);
  EXPECT_EQ(old.factor, 2);
  const RopeConfig yarn = rope_with([](GgufWriter* writer) {
    writer->AddString("llama.rope.scaling.type", "yarn");
    writer->AddFloat("llama.rope.scaling.factor", 8);
    writer->AddUint32("llama.rope.scaling.original_context_length", 64);
  });
  EXPECT_EQ(yarn.type, RopeType::kYarn);
  EXPECT_EQ(yarn.original_max_position_embeddings, 64);
  EXPECT_EQ(yarn.factor, 8);
}

TEST_F(SmallGgufTest, OnlyTheFrequenciesOfLlama31AreAccepted) {
  // What llama.cpp's converter writes: the wavelength decides how much a frequency is divided.
  const auto factors = [](float factor, float context) {
    std::string bytes;
    for (int i = 0; i < kHeadDim / 2; ++i) {
      const double wavelength = 2 * M_PI * std::pow(500000.0, 2.0 * i / kHeadDim);
      const double smooth = (context / wavelength - 1) / 3;
      const double value = wavelength < context / 4 ? 1
                           : wavelength > context   ? factor
                                                    : 1 / ((1 - smooth) / factor + smooth);
      bytes += GgufWriter::Bytes(static_cast<float>(value));
    }
    return bytes;
  };
  const auto with = [&](const std::string& bytes) {
    return PlainFile([&](GgufWriter* writer) {
      writer->AddFloat("llama.rope.freq_base", 500000);
      writer->AddTensor("rope_freqs.weight", 0, {kHeadDim / 2}, bytes);
    });
  };
  for (const float factor : {8.0f, 32.0f}) {
    const auto model = Load(with(factors(factor, 8192)));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->config.rope.type, RopeType::kLlama3);
    EXPECT_EQ((*model)->config.rope.factor, factor);
    EXPECT_EQ((*model)->config.rope.original_max_position_embeddings, 8192);
  }
  EXPECT_THAT(
      ErrorOfLoad(with(factors(8, 4096))),
      HasSubstr("tensor rope_freqs.weight has 2.2525141 as element 7, only the scaling of Llama 3.1 is supported"));
  EXPECT_EQ((*Load(with(factors(1, 8192))))->config.rope.type, RopeType::kDefault);
}

TEST_F(SmallGgufTest, EveryTokenThatEndsAnAnswerIsAnEndToken) {
  const std::string file = PlainFile([](GgufWriter* writer) {
    std::vector<std::string> tokens(kVocab, "x");
    std::vector<int32_t> types(kVocab, 1);
    tokens[5] = "<|im_end|>";
    types[5] = 3;
    tokens[6] = "<|eot_id|>";  // An ordinary token with this text.
    tokens[7] = "</s>";
    types[7] = 3;
    writer->AddStrings("tokenizer.ggml.tokens", tokens);
    writer->AddInts("tokenizer.ggml.token_type", types);
    writer->AddUint32("tokenizer.ggml.eos_token_id", 2);
    writer->AddUint32("tokenizer.ggml.eot_token_id", 9);
    writer->AddUint32("tokenizer.ggml.fim_pad_token_id", 11);
  });
  const auto model = Load(file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config.eos_token_ids, (std::vector<TokenId>{2, 5, 7, 9, 11}));
}

TEST_F(SmallGgufTest, DefaultsOfSamplingBecomeAGenerationConfig) {
  const auto with = [this](const char* key, float value) {
    return PlainFile([=](GgufWriter* writer) {
      writer->AddFloat("general.sampling.temp", 0.5f);
      writer->AddUint32("general.sampling.top_k", 20);
      writer->AddFloat(key, value);
    });
  };
  const auto model = Load(with("general.sampling.mirostat_tau", 1));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tokenizer_files.size(), 1u);
  EXPECT_EQ((*model)->tokenizer_files[0].name, "generation_config.json");
  EXPECT_EQ((*model)->tokenizer_files[0].contents, R"({"temperature":0.5,"top_k":20})");
  const auto with_xtc = Load(with("general.sampling.xtc_probability", 0.5f));
  ASSERT_TRUE(with_xtc.ok()) << with_xtc.status();
  EXPECT_EQ((*with_xtc)->tokenizer_files[0].contents, R"({"temperature":0.5,"top_k":20,"xtc_probability":0.5})");
  EXPECT_THAT(ErrorOfLoad(with("general.sampling.top_p", 2)),
              HasSubstr("general.sampling.top_p is 2.0, must be a number in 0.000001 .. 1"));
  EXPECT_TRUE((*Load(PlainFile()))->tokenizer_files.empty());
}

TEST_F(SmallGgufTest, TokensThatShallNotBeChosenAreRefused) {
  EXPECT_THAT(
      ErrorOfLoad(PlainFile([](GgufWriter* writer) { writer->AddInts("tokenizer.ggml.suppress_tokens", {3}); })),
      HasSubstr("tokenizer.ggml.suppress_tokens is"));
}

TEST_F(SmallGgufTest, ANumberThatIsNotFiniteIsNamed) {
  std::string file = PlainFile();
  const float bad = std::nanf("");
  std::memcpy(&file[file.size() - 4], &bad, sizeof(bad));
  EXPECT_EQ(ErrorOfLoad(file),
            "tensor blk.0.ffn_down.weight is F32 [256, 256], and its element 65535 is infinite or not a number");
  const std::string interleaved = FileWith(0, [&](int rows, int cols) {
    std::string bytes = RandomFloats(rows * cols, 0.1f);
    std::memcpy(&bytes[259 * sizeof(bad)], &bad, sizeof(bad));
    return bytes;
  });
  EXPECT_EQ(ErrorOfLoad(interleaved),
            "tensor blk.0.attn_q.weight is F32 [256, 256], and its element 259 is infinite or not a number");
}

TEST_F(SmallGgufTest, AMissingFileIsNamed) {
  EXPECT_EQ(LoadModel("/no/such/model.gguf", backend_.get()).status().message(),
            "there is no file /no/such/model.gguf");
  EXPECT_EQ(LoadModel("no-such/model.gguf", backend_.get()).status().message(), "there is no file no-such/model.gguf");
}

TEST_F(SmallGgufTest, AFileWithoutEndTokensHasNone) {
  const auto model = Load(PlainFile());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config.bos_token_id, -1);
  EXPECT_THAT((*model)->config.eos_token_ids, testing::IsEmpty());
}

TEST_F(SmallGgufTest, HeadsWithoutDimensionsAreRefused) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  for (const auto& [key, value] : {std::pair("block_count", 1),
                                   {"context_length", 128},
                                   {"embedding_length", 1},
                                   {"feed_forward_length", 32},
                                   {"attention.head_count", 2}}) {
    writer.AddUint32(absl::StrCat("llama.", key), uint32_t(value));
  }
  writer.AddFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddTensor("token_embd.weight", 0, {kVocab, 1}, RandomFloats(kVocab, 1));
  writer.AddTensor("rope_freqs.weight", 0, {0}, "");
  EXPECT_EQ(ErrorOfLoad(writer.File()),
            "llama.attention.key_length is missing, and llama.embedding_length / llama.attention.head_count is 0, it "
            "must be in 2 .. 256");
}

}  // namespace
}  // namespace quire
