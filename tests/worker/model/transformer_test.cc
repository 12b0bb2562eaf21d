// SPDX-License-Identifier: Apache-2.0

#include "worker/model/transformer.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/half_float.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/golden_model.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"

namespace quire {
namespace {

using testing::HasSubstr;

constexpr float kTolerance = 1e-5f;  // Of float32 against float32 in another order of operations.
// The limits when the input of every product is rounded to bfloat16, which changes it by up to 2^-9 of its value. On
// the golden model, which is small and random, the measured errors are 0.031 at most and 0.0096 on average. Rounding
// before float32 products gives the same errors.
constexpr float kBFloat16Tolerance = 0.05f;

// Of int8 weights and inputs on the same models.
constexpr float kInt8Tolerance = 0.15f;  // The largest measured error is 0.11.
// Of int8 K and V, also with int8 weights.
constexpr float kInt8KvTolerance = 0.15f;
// Of int4 weights, on models whose random weights lose more than the weights of a trained model.
constexpr float kInt4Tolerance = 0.8f;

bool MultipliesBFloat16(cpu::Isa isa) {
  return cpu::KernelsFor(isa).linear_input[static_cast<int>(DataType::kBFloat16)] == DataType::kBFloat16;
}

// The best instruction set that computes only in float32.
cpu::Isa StrictIsa() {
  std::vector<cpu::Isa> isas = cpu::SupportedIsas();
  std::erase_if(isas, MultipliesBFloat16);
  return isas.back();
}

// A test with one checkpoint, which has a certain architecture or type of weights. The cache and the activations are
// float32, except that inputs of products with bfloat16 weights are bfloat16 if the machine has instructions for them.
struct FamilyParam {
  const char* name;
  cpu::Isa isa;
  WeightRounding rounding = {};
  KvType kv_type = KvType::kFloat32;
};

void PrintTo(const FamilyParam& param, std::ostream* out) {
  *out << param.name << " " << cpu::Name(param.isa) << " " << Name(param.rounding.layers)
       << (param.rounding.output ? " with an output matrix of int8" : "") << ", K and V in " << Name(param.kv_type);
}

std::vector<FamilyParam> StrictFamilies() {
  std::vector<FamilyParam> params;
  for (const char* name : {"llama2",        "llama3",          "mistral",
                           "qwen2",         "qwen3",           "yarn",
                           "olmo2",         "smollm3",         "granite",
                           "seed_oss",      "ministral",       "gemma",
                           "gemma2",        "gemma3",          "phi3",
                           "phi3_long",     "bfloat16",        "float16",
                           "ministral3",    "olmo3",           "exaone4",
                           "apertus",       "arcee",           "helium",
                           "ernie4_5",      "hunyuan",         "glm",
                           "glm4",          "cohere",          "cohere2",
                           "gemma3_vision", "mistral3_vision", "ministral3_vision",
                           "llava",         "internvl",        "smolvlm",
                           "qwen2_5_vl",    "qwen3_vl",        "qwen3_moe",
                           "qwen2_moe",     "mixtral",         "olmoe",
                           "glm4_moe",      "granitemoe",      "gpt_oss"}) {
    params.push_back({name, StrictIsa()});
  }
  params.push_back({"gpt_oss_mxfp4", StrictIsa(), {.keeps_blocks = false}});
  return params;
}

std::vector<FamilyParam> BFloat16Families() {
  std::vector<FamilyParam> params;
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    if (MultipliesBFloat16(isa)) params.push_back({"bfloat16", isa});
  }
  return params;
}

// With every instruction set, since each has products of its own.
std::vector<FamilyParam> QuantizedFamilies() {
  constexpr WeightRounding kInt8 = {.layers = Quantization::kInt8};
  std::vector<FamilyParam> params;
  for (const cpu::Isa isa : cpu::SupportedIsas()) params.push_back({"bfloat16", isa, kInt8});
  for (const char* name : {"qwen2", "qwen3", "ernie4_5", "arcee", "cohere2"})
    params.push_back({name, StrictIsa(), kInt8});
  params.push_back({"phi3", StrictIsa(), kInt8});  // It stacks matrices.
  for (const cpu::Isa isa : cpu::SupportedIsas()) params.push_back({"llama3", isa, {.layers = Quantization::kInt4}});
  // The first has its embedding as output matrix.
  for (const char* name : {"llama3", "qwen2"}) params.push_back({name, StrictIsa(), {.output = true}});
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    params.push_back({"llama3", isa, {.layers = Quantization::kInt8, .output = true}});
  }
  return params;
}

std::vector<FamilyParam> Int8KvFamilies() {
  std::vector<FamilyParam> params;
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    params.push_back({"llama3", isa, {}, KvType::kInt8});
  }
  params.push_back({"qwen3", StrictIsa(), {.layers = Quantization::kInt8}, KvType::kInt8});
  for (const char* name : {"gemma2", "gemma3", "phi3", "olmo2"}) {
    params.push_back({name, StrictIsa(), {}, KvType::kInt8});
  }
  return params;
}

// With every instruction set. A rounded input may choose another expert, so only bits are compared.
std::vector<FamilyParam> ExpertFamilies() {
  std::vector<FamilyParam> params;
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    params.push_back({"qwen3_moe_bfloat16", isa});
    params.push_back({"gpt_oss_mxfp4", isa});
    params.push_back({"gpt_oss", isa, {.layers = Quantization::kInt4}});
    for (const Quantization layers : {Quantization::kInt8, Quantization::kInt4}) {
      params.push_back({"qwen3_moe", isa, {.layers = layers}});
    }
  }
  return params;
}

// Rounds the input of every product to bfloat16 and multiplies in float32, as bfloat16 instructions should.
class RoundingBackend : public cpu::CpuBackend {
 public:
  RoundingBackend() : CpuBackend(1, StrictIsa()) {}

  void Linear(const LinearArgs& args) override {
    LinearArgs rounded = args;
    rounded.x = Rounded(args.x, args.num_tokens, *args.w);
    CpuBackend::Linear(rounded);
  }
  void GatedLinear(const GatedLinearArgs& args) override {
    GatedLinearArgs rounded = args;
    rounded.x = Rounded(args.x, args.num_tokens, *args.w);
    CpuBackend::GatedLinear(rounded);
  }

 private:
  const float* Rounded(const void* x, int num_tokens, const PackedMatrix& w) {
    const float* values = static_cast<const float*>(x);
    rounded_.assign(values, values + size_t(num_tokens) * static_cast<const cpu::CpuPackedMatrix&>(w).cols());
    for (float& value : rounded_) value = ToFloat(ToBFloat16(value));
    return rounded_.data();
  }

  std::vector<float> rounded_;
};

// Tests of exact bits, which must pass with every instruction set.
class FamilyTest : public testing::TestWithParam<FamilyParam> {
 protected:
  FamilyTest()
      : backend_(cpu::MakeCpuBackend(2, GetParam().isa)),
        golden_(LoadGolden(GetParam().name, backend_.get(), GetParam().rounding)) {}

  PagedRunner Runner(PagedRunner::Options options = {}) {
    options.kv_type = GetParam().kv_type;
    return PagedRunner(golden_.model.get(), backend_.get(), options);
  }
  const Tokens& longest_prompt() const { return golden_.prompts.back(); }

  const std::unique_ptr<Backend> backend_;
  const Golden golden_;
};

// Tests with float32 for all values.
class StrictFamilyTest : public FamilyTest {};
class BFloat16FamilyTest : public FamilyTest {};
class QuantizedFamilyTest : public FamilyTest {};
class Int8KvFamilyTest : public FamilyTest {};

TEST_P(StrictFamilyTest, LogitsAreThoseOfTransformers) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const std::vector<Logits> logits = runner.Prefill(static_cast<int>(prompt), golden_.prompts[prompt], 64);
    ASSERT_EQ(logits.size(), golden_.logits[prompt].size());
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_LT(RelativeError(logits[i], golden_.logits[prompt][i]), kTolerance)
          << "prompt " << prompt << " token " << i;
    }
  }
}

TEST_P(StrictFamilyTest, GreedyTextIsThatOfTransformers) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const int sequence = static_cast<int>(prompt);
    const Logits last = runner.Prefill(sequence, golden_.prompts[prompt], 64).back();
    EXPECT_EQ(runner.Greedy(sequence, last, 64), golden_.greedy[prompt]) << "prompt " << prompt;
  }
}

TEST_P(FamilyTest, ChunkSizeChangesNoBit) {
  const std::vector<Logits> whole = Runner().Prefill(0, longest_prompt(), 64);
  EXPECT_EQ(Runner().Prefill(0, longest_prompt(), 1), whole);
  EXPECT_EQ(Runner().Prefill(0, longest_prompt(), 7), whole);
}

TEST_P(FamilyTest, BlockSizeChangesNoBit) {
  const std::vector<Logits> expected = Runner().Prefill(0, longest_prompt(), 7);
  for (const int block_size : {1, 2, 4, 8, 32, 64}) {
    PagedRunner::Options options;
    options.block_size = block_size;
    EXPECT_EQ(Runner(options).Prefill(0, longest_prompt(), 7), expected) << "block size " << block_size;
  }
}

TEST_P(FamilyTest, BlockPlacementChangesNoBit) {
  const std::vector<Logits> expected = Runner().Prefill(0, longest_prompt(), 64);
  for (uint32_t seed = 2; seed < 5; ++seed) {
    PagedRunner::Options options;
    options.placement_seed = seed;
    EXPECT_EQ(Runner(options).Prefill(0, longest_prompt(), 64), expected) << "placement seed " << seed;
  }
}

TEST_P(FamilyTest, CompanyInTheBatchChangesNoBit) {
  std::vector<Logits> alone;
  for (const Tokens& prompt : golden_.prompts) {
    for (Logits& logits : Runner().Prefill(0, prompt, 64)) alone.push_back(std::move(logits));
  }
  PagedRunner together = Runner();
  EXPECT_EQ(together.Run({{0, golden_.prompts[0]}, {1, golden_.prompts[1]}, {2, golden_.prompts[2]}}), alone);
}

TEST_P(FamilyTest, ADecodeBesideAPrefillChunkChangesNoBit) {
  const Tokens& prompt = golden_.prompts[1];
  const Tokens& company = golden_.prompts[2];
  PagedRunner alone = Runner();
  alone.Prefill(0, prompt, 64);
  const Logits expected = alone.Run({{0, {5}}}).front();
  PagedRunner together = Runner();
  together.Prefill(0, prompt, 64);
  EXPECT_EQ(together.Run({{7, company}, {0, {5}}}).back(), expected);
}

TEST_P(FamilyTest, LogitsInSeveralCallsAreTheSameBits) {
  const std::vector<Logits> whole = Runner().Prefill(0, longest_prompt(), 64);
  PagedRunner::Options options;
  options.max_logit_rows = 3;
  EXPECT_EQ(Runner(options).Prefill(0, longest_prompt(), 64), whole);
}

std::string FamilyName(const testing::TestParamInfo<FamilyParam>& info) {
  return std::string(info.param.name) + "_" + cpu::Name(info.param.isa) + "_" + Name(info.param.rounding.layers) +
         (info.param.rounding.output ? "_output_" : "_") + Name(info.param.kv_type);
}

TEST_P(BFloat16FamilyTest, LogitsAreNearThoseOfTransformers) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const std::vector<Logits> logits = runner.Prefill(static_cast<int>(prompt), golden_.prompts[prompt], 64);
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_LT(RelativeError(logits[i], golden_.logits[prompt][i]), kBFloat16Tolerance)
          << "prompt " << prompt << " token " << i;
    }
  }
}

TEST_P(BFloat16FamilyTest, OnlyTheRoundingOfInputsDiffersFromFloat32) {
  RoundingBackend rounding;
  const Golden same = LoadGolden(GetParam().name, &rounding);
  for (const Tokens& prompt : golden_.prompts) {
    const std::vector<Logits> expected = PagedRunner(same.model.get(), &rounding, {}).Prefill(0, prompt, 64);
    const std::vector<Logits> logits = Runner().Prefill(0, prompt, 64);
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_LT(RelativeError(logits[i], expected[i]), kTolerance) << "token " << i;
    }
  }
}

TEST_P(QuantizedFamilyTest, LogitsAreNearThoseOfTransformers) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const std::vector<Logits> logits = runner.Prefill(static_cast<int>(prompt), golden_.prompts[prompt], 64);
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_LT(RelativeError(logits[i], golden_.logits[prompt][i]),
                GetParam().rounding.layers == Quantization::kInt4 ? kInt4Tolerance : kInt8Tolerance)
          << "prompt " << prompt << " token " << i;
    }
  }
}

TEST_P(QuantizedFamilyTest, ThreadsChangeNoBit) {
  const std::unique_ptr<Backend> three = cpu::MakeCpuBackend(3, GetParam().isa);
  const Golden same = LoadGolden(GetParam().name, three.get(), GetParam().rounding);
  EXPECT_EQ(PagedRunner(same.model.get(), three.get(), {}).Prefill(0, longest_prompt(), 64),
            Runner().Prefill(0, longest_prompt(), 64));
}

// Their float32 operations are the same bits as well. The output matrix and the cache have float32.
TEST_P(QuantizedFamilyTest, InstructionSetsWithTheSameNumericsGiveTheSameBits) {
  const auto logits_of = [](cpu::Isa isa) {
    const std::unique_ptr<Backend> backend = cpu::MakeCpuBackend(1, isa);
    const Golden golden = LoadGolden("llama3", backend.get(), GetParam().rounding);
    return PagedRunner(golden.model.get(), backend.get(), {}).Prefill(0, golden.prompts.back(), 64);
  };
  const cpu::Isa isa = GetParam().isa;
  if (isa == cpu::Isa::kGeneric) GTEST_SKIP() << "its float32 operations do not fuse multiplication and addition";
  EXPECT_EQ(logits_of(isa), logits_of(StrictIsa()));
}

TEST_P(Int8KvFamilyTest, LogitsAreNearThoseOfTransformers) {
  PagedRunner runner = Runner();
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    const std::vector<Logits> logits = runner.Prefill(static_cast<int>(prompt), golden_.prompts[prompt], 64);
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_LT(RelativeError(logits[i], golden_.logits[prompt][i]), kInt8KvTolerance)
          << "prompt " << prompt << " token " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Int8Kv, FamilyTest, testing::ValuesIn(Int8KvFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(Int8Kv, Int8KvFamilyTest, testing::ValuesIn(Int8KvFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(Experts, FamilyTest, testing::ValuesIn(ExpertFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(Quantized, FamilyTest, testing::ValuesIn(QuantizedFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(Quantized, QuantizedFamilyTest, testing::ValuesIn(QuantizedFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(Strict, FamilyTest, testing::ValuesIn(StrictFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(Strict, StrictFamilyTest, testing::ValuesIn(StrictFamilies()), FamilyName);
INSTANTIATE_TEST_SUITE_P(BFloat16, FamilyTest, testing::ValuesIn(BFloat16Families()), FamilyName);
INSTANTIATE_TEST_SUITE_P(BFloat16, BFloat16FamilyTest, testing::ValuesIn(BFloat16Families()), FamilyName);
// On a machine without such instructions there is nothing to run.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BFloat16FamilyTest);

TEST(TransformerTest, AHalfPrecisionCacheStaysNear) {
  constexpr float kCacheTolerance = 0.03f;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  const Golden golden = LoadGolden("llama3", backend.get());
  PagedRunner::Options options;
  options.kv_type = KvType::kBFloat16;
  PagedRunner runner(golden.model.get(), backend.get(), options);
  const std::vector<Logits> logits = runner.Prefill(0, golden.prompts.back(), 64);
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_LT(RelativeError(logits[i], golden.logits.back()[i]), kCacheTolerance) << "token " << i;
  }
}

// Experts in MXFP4 are multiplied in their blocks, by inputs that are rounded to 8 bits. The limit is that of
// gguf_blocks_test.cc.
constexpr float kBlockTolerance = 0.1f;

// A token uses all experts, because a rounded input may choose others.
TEST(TransformerTest, ExpertsInBlocksAreNearThoseInBFloat16) {
  const TestDirectory directory;
  directory.CopyFrom(GoldenModel("gpt_oss_mxfp4"), "model.safetensors");
  auto config = nlohmann::json::parse(ReadWholeFile(GoldenModel("gpt_oss_mxfp4/config.json")));
  config["num_experts_per_tok"] = config["num_local_experts"];
  directory.Write("config.json", config.dump());
  const std::unique_ptr<Backend> strict = cpu::MakeCpuBackend(1, StrictIsa());
  const Tokens prompt = LoadGolden("gpt_oss_mxfp4", strict.get()).prompts.back();
  const auto logits_of = [&](Backend* backend, bool keeps_blocks) {
    const auto model = LoadModel(directory.path(), backend, nullptr, {.keeps_blocks = keeps_blocks});
    EXPECT_EQ((*model)->weights.rounding.keeps_blocks, keeps_blocks && backend->MultipliesBlocks());
    return PagedRunner(model->get(), backend, {}).Prefill(0, prompt, 64);
  };
  const std::vector<Logits> expected = logits_of(strict.get(), /*keeps_blocks=*/false);
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    SCOPED_TRACE(cpu::Name(isa));
    const std::unique_ptr<Backend> backend = cpu::MakeCpuBackend(1, isa);
    EXPECT_LT(LargestError(logits_of(backend.get(), /*keeps_blocks=*/true), expected), kBlockTolerance);
  }
}

// In the first two prompts, rounded inputs choose the experts of transformers. Of the text after the second one, that
// holds for 29 tokens, or for 10 where other products round to bfloat16 as well.
TEST(TransformerTest, ExpertsInBlocksGiveLogitsAndTokensOfTransformers) {
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    SCOPED_TRACE(cpu::Name(isa));
    const std::unique_ptr<Backend> backend = cpu::MakeCpuBackend(1, isa);
    if (!backend->MultipliesBlocks()) continue;
    const int num_tokens = isa == cpu::Isa::kAvx512Bf16 ? 10 : 24;
    const Golden golden = LoadGolden("gpt_oss_mxfp4", backend.get());
    PagedRunner runner(golden.model.get(), backend.get(), {});
    for (const int prompt : {0, 1}) {
      const std::vector<Logits> logits = runner.Prefill(prompt, golden.prompts[prompt], 64);
      EXPECT_LT(LargestError(logits, golden.logits[prompt]), kBlockTolerance) << "prompt " << prompt;
      const Tokens& greedy = golden.greedy[prompt];
      EXPECT_EQ(runner.Greedy(prompt, logits.back(), num_tokens), Tokens(greedy.begin(), greedy.begin() + num_tokens));
    }
  }
}

TEST(TransformerTest, ThreadsChangeNoBit) {
  const std::unique_ptr<Backend> one = MakeCpuBackend(1);
  const std::unique_ptr<Backend> three = MakeCpuBackend(3);
  for (const char* name : {"qwen3", "qwen3_moe"}) {
    const Golden golden = LoadGolden(name, one.get());
    const Golden same = LoadGolden(name, three.get());
    const std::vector<Logits> expected =
        PagedRunner(golden.model.get(), one.get(), {}).Prefill(0, golden.prompts.back(), 64);
    EXPECT_EQ(PagedRunner(same.model.get(), three.get(), {}).Prefill(0, golden.prompts.back(), 64), expected) << name;
  }
}

TEST(TransformerTest, AStepWithoutRoomIsRefused) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const Golden golden = LoadGolden("llama2", backend.get());
  const auto none = Transformer::Create(&golden.model->config, &golden.model->weights, backend.get(), {0, 1});
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("a step of 0 tokens and 1 logit rows"));
}

TEST(TransformerTest, TheStoryModelTellsItsStory) {
  const std::string directory = SourcePath("../shared/models/stories260k");
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << directory << " is absent";
  const auto golden = nlohmann::json::parse(ReadWholeFile(GoldenModel("stories260k.json")));
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  const auto model = LoadModel(directory, backend.get());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tokenizer_files.size(), 4u);
  PagedRunner runner(model->get(), backend.get(), {});
  const Logits first = runner.Prefill(0, golden["prompt"].get<Tokens>(), 64).back();
  EXPECT_EQ(runner.Greedy(0, first, 100), golden["greedy"].get<Tokens>());
  EXPECT_THAT(golden["text"].get<std::string>(), HasSubstr("Once upon a time, there was a little girl named Lily."));
}

}  // namespace
}  // namespace quire
