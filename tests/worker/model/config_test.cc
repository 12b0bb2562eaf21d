// SPDX-License-Identifier: Apache-2.0

#include "worker/model/config.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "worker/model/layer_stacks.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

json LlamaJson() {
  return {
      {"architectures", {"LlamaForCausalLM"}},
      {"hidden_size", 64},
      {"intermediate_size", 172},
      {"num_hidden_layers", 3},
      {"num_attention_heads", 8},
      {"num_key_value_heads", 4},
      {"vocab_size", 512},
      {"max_position_embeddings", 2048},
      {"rms_norm_eps", 1e-5},
      {"bos_token_id", 1},
      {"eos_token_id", 2},
  };
}

json QwenJson(const std::string& architecture) {
  json config = LlamaJson();
  config["architectures"] = {architecture};
  config["sliding_window"] = 100;
  config["max_window_layers"] = 1;
  return config;
}

absl::StatusOr<ModelConfig> Parse(const json& config, const std::string& generation = "") {
  return ParseModelConfig(config.dump(), generation);
}

std::vector<int> Windows(const json& config) {
  std::vector<int> windows;
  const auto parsed = Parse(config);
  for (const LayerConfig& layer : parsed->layers) windows.push_back(layer.window);
  return windows;
}

std::string ErrorOf(const json& config) {
  const auto result = Parse(config);
  EXPECT_FALSE(result.ok());
  return std::string(result.status().message());
}

TEST(ModelConfigTest, ReadsTheShape) {
  const auto config = Parse(LlamaJson());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 172);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->qkv_rows(), 128);
  EXPECT_EQ(config->vocab_size, 512);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->qk_norm, QkNorm::kNone);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(ModelConfigTest, FirstLlamaConfigsHaveOneKvHeadPerHead) {
  json config = LlamaJson();
  config.erase("num_key_value_heads");
  EXPECT_EQ(Parse(config)->num_kv_heads, 8);
}

TEST(ModelConfigTest, HeadDimMayDifferFromTheQuotient) {
  json config = LlamaJson();
  config["head_dim"] = 32;
  EXPECT_EQ(Parse(config)->head_dim, 32);
  config["head_dim"] = nullptr;
  EXPECT_EQ(Parse(config)->head_dim, 8);
}

TEST(ModelConfigTest, BiasesFollowTheFamily) {
  json llama = LlamaJson();
  llama["attention_bias"] = true;
  llama["mlp_bias"] = true;
  EXPECT_TRUE(Parse(llama)->qkv_bias);
  EXPECT_TRUE(Parse(llama)->attention_output_bias);
  EXPECT_TRUE(Parse(llama)->mlp_bias);
  const auto qwen2 = Parse(QwenJson("Qwen2ForCausalLM"));
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->attention_output_bias);
  const auto qwen3 = Parse(QwenJson("Qwen3ForCausalLM"));
  EXPECT_FALSE(qwen3->qkv_bias);
  EXPECT_EQ(qwen3->qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(qwen3->head_dim, 128) << "Qwen3 never derives it";
}

TEST(ModelConfigTest, MistralSlidesOnEveryLayer) {
  json config = LlamaJson();
  config["architectures"] = {"MistralForCausalLM"};
  config["sliding_window"] = 100;
  EXPECT_THAT(Windows(config), ElementsAre(100, 100, 100));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(Windows(config), Each(0));
  config.erase("sliding_window");
  EXPECT_THAT(Windows(config), Each(4096)) << "the default of transformers";
}

TEST(ModelConfigTest, QwenSlidesOnlyWhenAskedAndOnlyOnSomeLayers) {
  json config = QwenJson("Qwen2ForCausalLM");
  EXPECT_THAT(Windows(config), Each(0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(Windows(config), ElementsAre(0, 100, 100));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(Windows(config), ElementsAre(100, 0, 0));
}

TEST(ModelConfigTest, LlamaIgnoresAWindow) {
  json config = LlamaJson();
  config["sliding_window"] = 100;
  EXPECT_THAT(Windows(config), Each(0));
}

TEST(ModelConfigTest, GenerationConfigReplacesTheEndTokens) {
  json config = LlamaJson();
  config["eos_token_id"] = {7, 3, 7};
  EXPECT_THAT(Parse(config)->eos_token_ids, ElementsAre(3, 7));
  EXPECT_THAT(Parse(config, R"({"eos_token_id": [9, 4]})")->eos_token_ids, ElementsAre(4, 9));
  EXPECT_THAT(Parse(config, R"({"temperature": 0.6})")->eos_token_ids, ElementsAre(3, 7));
  config["eos_token_id"] = nullptr;
  EXPECT_TRUE(Parse(config)->eos_token_ids.empty());
}

TEST(ModelConfigTest, RopeIsReadInBothForms) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 1024}};
  json before = LlamaJson();
  before["rope_theta"] = 500000;
  before["rope_scaling"] = scaling;
  json after = LlamaJson();
  after["rope_parameters"] = scaling;
  after["rope_parameters"]["rope_theta"] = 500000.0;
  for (const json& config : {before, after}) {
    const auto parsed = Parse(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->rope.type, RopeType::kLlama3);
    EXPECT_EQ(parsed->rope.theta, 500000.0);
    EXPECT_EQ(parsed->rope.factor, 8.0);
    EXPECT_EQ(parsed->rope.original_max_position_embeddings, 1024);
  }
  EXPECT_EQ(Summary(*Parse(before)), Summary(*Parse(after)));
}

TEST(ModelConfigTest, SummaryTellsEveryFieldApart) {
  json other = LlamaJson();
  other["rms_norm_eps"] = 1e-6;
  EXPECT_NE(Summary(*Parse(LlamaJson())), Summary(*Parse(other)));
  json sliding = QwenJson("Qwen2ForCausalLM");
  sliding["use_sliding_window"] = true;
  EXPECT_THAT(Summary(*Parse(sliding)), HasSubstr(" windows 1x0,2x100 "));
}

// The file has the model_type of every supported family and what transformers assumes for it.
TEST(ModelConfigTest, MissingFieldsHaveTheDefaultsOfTransformers) {
  const json defaults = json::parse(ReadWholeFile(GoldenModel("defaults.json")));
  ASSERT_GE(defaults.size(), 27u);
  for (const auto& [type, expected] : defaults.items()) {
    SCOPED_TRACE(type);
    const auto config = Parse({{"model_type", type}});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->hidden_size, expected["hidden_size"]);
    EXPECT_EQ(config->intermediate_size, expected["intermediate_size"]);
    EXPECT_EQ(config->num_heads, expected["num_heads"]);
    EXPECT_EQ(config->num_kv_heads, expected["num_kv_heads"]);
    EXPECT_EQ(config->head_dim, expected["head_dim"]);
    EXPECT_EQ(config->vocab_size, expected["vocab_size"]);
    EXPECT_EQ(config->max_position_embeddings, expected["max_position_embeddings"]);
    EXPECT_EQ(config->rms_norm_eps, expected["rms_norm_eps"].get<float>());
    EXPECT_EQ(config->rope.theta, expected["rope_theta"]);
    EXPECT_EQ(Name(config->rope.type), expected["rope_type"]);
    EXPECT_EQ(config->rope.rotary_part, expected["rotary_part"]);
    EXPECT_EQ(config->window_rope.has_value() ? config->window_rope->theta : 0, expected["window_rope_theta"]);
    EXPECT_EQ(config->tie_word_embeddings, expected["tie_word_embeddings"]);
    EXPECT_EQ(config->bos_token_id, expected["bos"]);
    EXPECT_EQ(config->eos_token_ids, expected["eos"].get<std::vector<TokenId>>());
    EXPECT_EQ(config->activation == Activation::kGeluTanh, expected["activation"] == "gelu_pytorch_tanh");
    EXPECT_EQ(config->qkv_bias, expected["qkv_bias"]);
    ASSERT_EQ(config->layers.size(), expected["windows"].size());
    for (size_t i = 0; i < config->layers.size(); ++i) {
      EXPECT_EQ(config->layers[i].window, expected["windows"][i]) << i;
      EXPECT_EQ(config->layers[i].rope != LayerRope::kNone, expected["rotates"][i]) << i;
    }
    ASSERT_EQ(config->moe.exists(), expected.contains("experts"));
    if (!config->moe.exists()) continue;
    EXPECT_EQ(config->moe.router.num_experts, expected["experts"]["num_experts"]);
    EXPECT_EQ(config->moe.router.top_k, expected["experts"]["top_k"]);
    EXPECT_EQ(config->moe.router.normalizes, expected["experts"]["normalizes"]);
    EXPECT_EQ(config->moe.width, expected["experts"]["width"]);
  }
}

json WrapperJson(const std::string& architecture, json text) {
  return {{"architectures", {architecture}}, {"vision_config", {{"hidden_size", 8}}}, {"text_config", std::move(text)}};
}

// As published: config.json of Gemma 3 4B leaves out what has the default of its text model.
TEST(ModelConfigTest, TheTextModelInAWrapperIsRead) {
  json gemma =
      WrapperJson("Gemma3ForConditionalGeneration", {{"hidden_size", 2560},
                                                     {"intermediate_size", 10240},
                                                     {"model_type", "gemma3_text"},
                                                     {"num_hidden_layers", 34},
                                                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                                     {"sliding_window", 1024}});
  gemma["eos_token_id"] = {1, 106};
  gemma["torch_dtype"] = "bfloat16";
  const auto config = Parse(gemma);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->head_dim, 256);
  EXPECT_EQ(config->vocab_size, 262208);
  EXPECT_EQ(config->torch_dtype, "bfloat16");
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 106));
  EXPECT_EQ(config->layers[0].window, 1024);
  EXPECT_EQ(config->layers[5].window, 0);
  EXPECT_EQ(config->rope.factor, 8.0);
  EXPECT_EQ(config->window_rope->type, RopeType::kDefault);
  gemma["text_config"]["num_attention_heads"] = 0;
  EXPECT_THAT(ErrorOf(gemma), HasSubstr("config.json: text_config.num_attention_heads is 0, must be"));
  gemma["text_config"] = 1;
  EXPECT_THAT(ErrorOf(gemma), HasSubstr("text_config is 1, must be an object"));
}

TEST(ModelConfigTest, FieldsOfAWrapperMayBeOutsideOfItsTextModel) {
  json mistral = LlamaJson();
  mistral.erase("architectures");
  mistral["model_type"] = "ministral3";
  mistral["rope_parameters"] = {{"rope_type", "yarn"},
                                {"factor", 16.0},
                                {"original_max_position_embeddings", 128},
                                {"llama_4_scaling_beta", 0.1}};
  json wrapper = WrapperJson("Mistral3ForConditionalGeneration", mistral);
  wrapper["quantization_config"] = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  wrapper["tie_word_embeddings"] = false;
  const auto config = Parse(wrapper);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Ministral3ForCausalLM");
  EXPECT_EQ(config->quantization.format, CheckpointFormat::kFp8);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->rope.query_growth, 0.1);
  wrapper.erase("tie_word_embeddings");
  EXPECT_TRUE(Parse(wrapper)->tie_word_embeddings) << "the default of the wrapper";
  wrapper["tie_word_embeddings"] = false;
  wrapper["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(Parse(wrapper)->tie_word_embeddings) << "as older versions of transformers wrote it";
  wrapper["text_config"]["rope_parameters"]["factor"] = 0;
  EXPECT_THAT(ErrorOf(wrapper), HasSubstr("text_config.rope_parameters.factor is 0, must be"));
  wrapper["text_config"]["rope_parameters"]["factor"] = 1;
  wrapper["text_config"]["rope_parameters"].erase("original_max_position_embeddings");
  EXPECT_THAT(ErrorOf(wrapper), HasSubstr("text_config.rope_parameters.original_max_position_embeddings is missing"));
}

// Until transformers 4.52, Qwen2.5-VL had no text_config, and named its rotary embedding mrope.
TEST(ModelConfigTest, AFlatWrapperIsItsOwnTextModel) {
  json qwen = LlamaJson();
  qwen["architectures"] = {"Qwen2_5_VLForConditionalGeneration"};
  qwen["model_type"] = "qwen2_5_vl";
  qwen["vision_config"] = {{"depth", 32}};
  qwen["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}};
  const auto config = Parse(qwen);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.type, RopeType::kDefault);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_TRUE(config->qkv_bias);
  qwen["architectures"] = {"Qwen2ForCausalLM"};
  qwen["model_type"] = "qwen2";
  EXPECT_THAT(ErrorOf(qwen), HasSubstr(R"(rope_scaling.type is "mrope", must be)"));
}

// A device that lacks them refuses the model.
TEST(ModelConfigTest, FamiliesNameThePartsThatTheyNeed) {
  const auto parts_of = [](const char* type) { return OptionalPartsOf(*Parse({{"model_type", type}})); };
  EXPECT_THAT(parts_of("ministral3"), ElementsAre(OptionalPart::kGrowingQueries));
  EXPECT_THAT(parts_of("hunyuan_v1_dense"), ElementsAre(OptionalPart::kRotatedNorms));
  EXPECT_THAT(parts_of("apertus"), ElementsAre(OptionalPart::kPlainMlp));
  EXPECT_THAT(parts_of("arcee"), ElementsAre(OptionalPart::kPlainMlp));
  EXPECT_THAT(parts_of("cohere2"), ElementsAre(OptionalPart::kScaledProducts, OptionalPart::kLayerNorm));
  EXPECT_THAT(parts_of("glm"), ElementsAre(OptionalPart::kPartialRotation));
  EXPECT_THAT(parts_of("exaone4"), ElementsAre(OptionalPart::kNormedOutputs));
  for (const char* type : {"ernie4_5", "helium"}) EXPECT_THAT(parts_of(type), testing::IsEmpty()) << type;
}

TEST(ModelConfigTest, LayersOfFullAttentionRotateAsInTransformers) {
  const auto rotating = [](json config) {
    std::vector<bool> result;
    const auto parsed = Parse(config);
    for (const LayerConfig& layer : parsed->layers) result.push_back(layer.rope == LayerRope::kMain);
    return result;
  };
  json config = LlamaJson();
  config["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention"};
  config["architectures"] = {"Exaone4ForCausalLM"};
  EXPECT_THAT(rotating(config), ElementsAre(true, true, false));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(rotating(config), Each(true)) << "without windows, all layers rotate";
  config["architectures"] = {"Cohere2ForCausalLM"};
  EXPECT_THAT(rotating(config), Each(false));
  config["sliding_window"] = 16;
  EXPECT_THAT(rotating(config), ElementsAre(true, true, false));
  config["use_qk_norm"] = true;
  EXPECT_THAT(ErrorOf(config), HasSubstr("use_qk_norm is true, must be false"));
}

TEST(ModelConfigTest, NullIsNotTheDefaultOfTokensAndKvHeads) {
  json config = LlamaJson();
  config["architectures"] = {"MistralForCausalLM"};
  config.erase("num_key_value_heads");
  config["bos_token_id"] = nullptr;
  EXPECT_EQ(Parse(config)->num_kv_heads, 8);
  EXPECT_EQ(Parse(config)->bos_token_id, -1);
  config["num_attention_heads"] = 16;
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Parse(config)->num_kv_heads, 16);
}

TEST(ModelConfigTest, SmolLM3RotatesWhereTheFileSays) {
  json config = LlamaJson();
  config["architectures"] = {"SmolLM3ForCausalLM"};
  const auto rotating = [&] {
    std::vector<bool> result;
    const auto parsed = Parse(config);
    for (const LayerConfig& layer : parsed->layers) result.push_back(layer.rope == LayerRope::kMain);
    return result;
  };
  EXPECT_THAT(rotating(), ElementsAre(true, true, true)) << "every fourth layer does not";
  config["no_rope_layer_interval"] = 2;
  EXPECT_THAT(rotating(), ElementsAre(true, false, true));
  config["no_rope_layers"] = {0, 1, 1, 0};
  EXPECT_THAT(rotating(), ElementsAre(false, true, true));
  config["use_sliding_window"] = true;
  config["sliding_window"] = 50;
  EXPECT_THAT(Windows(config), ElementsAre(50, 0, 0)) << "layers without rotation slide";
  config["no_rope_layers"] = {0, 1};
  EXPECT_THAT(ErrorOf(config), HasSubstr("no_rope_layers is [0,1], must be an array of at least 3 times 0 or 1"));
  config["no_rope_layers"] = {0, 1, 2};
  EXPECT_THAT(ErrorOf(config), HasSubstr("no_rope_layers is [0,1,2], must be"));
}

TEST(ModelConfigTest, MinistralSlidesWhereTheFileSays) {
  json config = LlamaJson();
  config["architectures"] = {"MinistralForCausalLM"};
  EXPECT_THAT(Windows(config), Each(4096));
  config["sliding_window"] = 100;
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(Windows(config), ElementsAre(0, 100, 0));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(Windows(config), Each(0));
}

TEST(ModelConfigTest, GraniteHasFourMultipliers) {
  json config = LlamaJson();
  config["architectures"] = {"GraniteForCausalLM"};
  config["embedding_multiplier"] = 12.0;
  config["attention_multiplier"] = 0.0078125;
  config["residual_multiplier"] = 0.22;
  config["logits_scaling"] = 16.0;
  const auto granite = Parse(config);
  ASSERT_TRUE(granite.ok()) << granite.status();
  EXPECT_EQ(granite->embedding_scale, 12.0f);
  EXPECT_EQ(granite->attention_scale, 0.0078125f);
  EXPECT_EQ(granite->residual_scale, 0.22f);
  EXPECT_EQ(granite->logit_scale, 0.0625f);
  EXPECT_THAT(OptionalPartsOf(*granite), ElementsAre(OptionalPart::kScaledEmbeddings, OptionalPart::kScaledProducts));
  config["architectures"] = {"LlamaForCausalLM"};
  EXPECT_EQ(Parse(config)->embedding_scale, 1.0f) << "Llama ignores them";
  EXPECT_THAT(OptionalPartsOf(*Parse(config)), testing::IsEmpty());
}

TEST(ModelConfigTest, SeedOssHasABiasOfItsOwnForTheOutputOfAttention) {
  json config = LlamaJson();
  config["architectures"] = {"SeedOssForCausalLM"};
  EXPECT_TRUE(Parse(config)->qkv_bias);
  EXPECT_FALSE(Parse(config)->attention_output_bias);
  config["attention_bias"] = false;
  config["attention_out_bias"] = true;
  EXPECT_FALSE(Parse(config)->qkv_bias);
  EXPECT_TRUE(Parse(config)->attention_output_bias);
}

json GemmaJson(const std::string& architecture) {
  json config = LlamaJson();
  config["architectures"] = {architecture};
  config["head_dim"] = 16;
  return config;
}

TEST(ModelConfigTest, GemmaNormsAddOneAndEmbeddingsAreScaled) {
  for (const char* architecture : {"GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"}) {
    const auto config = Parse(GemmaJson(architecture));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(config->norms_add_one);
    EXPECT_EQ(config->embedding_scale, 8.0f) << "the square root of hidden_size";
    EXPECT_EQ(config->activation, Activation::kGeluTanh);
    EXPECT_TRUE(config->tie_word_embeddings);
  }
}

TEST(ModelConfigTest, Gemma2CapsScoresAndLogitsAndEverySecondLayerSlides) {
  json config = GemmaJson("Gemma2ForCausalLM");
  const auto gemma = Parse(config);
  ASSERT_TRUE(gemma.ok()) << gemma.status();
  EXPECT_EQ(gemma->attention_softcap, 50);
  EXPECT_EQ(gemma->logit_softcap, 30);
  EXPECT_EQ(gemma->attention_scale, 0.0625f) << "the default of query_pre_attn_scalar is 256";
  EXPECT_EQ(gemma->norms, NormPlacement::kBoth);
  EXPECT_THAT(Windows(config), ElementsAre(4096, 0, 4096));
  config["attn_logit_softcapping"] = nullptr;
  config["final_logit_softcapping"] = 7.5;
  config["query_pre_attn_scalar"] = 64;
  config["layer_types"] = {"full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(Parse(config)->attention_softcap, 0);
  EXPECT_EQ(Parse(config)->logit_softcap, 7.5f);
  EXPECT_EQ(Parse(config)->attention_scale, 0.125f);
  EXPECT_THAT(Windows(config), ElementsAre(0, 0, 4096));
  config["final_logit_softcapping"] = 0;
  EXPECT_THAT(ErrorOf(config), HasSubstr("final_logit_softcapping is 0, must be a number in 0.000001 .. 1000000"));
}

TEST(ModelConfigTest, Gemma3HasARotaryEmbeddingForLayersWithAWindow) {
  json before = GemmaJson("Gemma3ForCausalLM");
  before["sliding_window_pattern"] = 3;
  before["sliding_window"] = 100;
  before["rope_theta"] = 500000.0;
  before["rope_local_base_freq"] = 20000.0;
  before["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  json after = before;
  for (const char* field : {"sliding_window_pattern", "rope_theta", "rope_local_base_freq", "rope_scaling"}) {
    after.erase(field);
  }
  after["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention"};
  after["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000.0}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 20000.0}}}};
  for (const json& config : {before, after}) {
    const auto gemma = Parse(config);
    ASSERT_TRUE(gemma.ok()) << gemma.status();
    EXPECT_EQ(gemma->rope.type, RopeType::kLinear);
    EXPECT_EQ(gemma->rope.theta, 500000.0);
    ASSERT_TRUE(gemma->window_rope.has_value());
    EXPECT_EQ(gemma->window_rope->type, RopeType::kDefault);
    EXPECT_EQ(gemma->window_rope->theta, 20000.0);
    EXPECT_THAT(Windows(config), ElementsAre(100, 100, 0));
    EXPECT_EQ(gemma->layers[0].rope, LayerRope::kWindow);
    EXPECT_EQ(gemma->layers[2].rope, LayerRope::kMain);
  }
  EXPECT_EQ(Summary(*Parse(before)), Summary(*Parse(after)));
}

json Phi3Json() {
  json config = LlamaJson();
  config["architectures"] = {"Phi3ForCausalLM"};
  config["hidden_size"] = 128;
  config["partial_rotary_factor"] = 0.75;  // Of 16 dimensions.
  config["max_position_embeddings"] = 131072;
  config["original_max_position_embeddings"] = 4096;
  config["rope_scaling"] = {
      {"type", "longrope"}, {"short_factor", {1, 1, 1, 1, 1, 2}}, {"long_factor", {1, 2, 3, 4, 5, 6}}};
  return config;
}

// As Transformers 5.24 decides.
TEST(ModelConfigTest, OfTwoSpellingsOfRopeTheOneOfTransformersWins) {
  json config = LlamaJson();
  config["rope_theta"] = 20000.0;
  config["original_max_position_embeddings"] = 512;
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 30000.0}};
  EXPECT_EQ(ParseModelConfig(config.dump(), "")->rope.theta, 30000.0);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"type", "linear"}, {"factor", 2.0}};
  const auto scaled = ParseModelConfig(config.dump(), "");
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ(scaled->rope.theta, 20000.0) << "rope_scaling replaces all of rope_parameters";
  EXPECT_EQ(scaled->rope.type, RopeType::kYarn);
  EXPECT_EQ(scaled->rope.original_max_position_embeddings, scaled->max_position_embeddings);
  config["rope_scaling"]["original_max_position_embeddings"] = 256;
  EXPECT_EQ(ParseModelConfig(config.dump(), "")->rope.original_max_position_embeddings, 256);
  config["rope_scaling"] = json::object();
  EXPECT_EQ(ParseModelConfig(config.dump(), "")->rope.theta, 30000.0);
  json gemma = LlamaJson();
  gemma["architectures"] = {"Gemma3ForCausalLM"};
  gemma["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 30000.0}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 4000.0}}}};
  gemma["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const auto windowed = ParseModelConfig(gemma.dump(), "");
  ASSERT_TRUE(windowed.ok()) << windowed.status();
  EXPECT_EQ(windowed->rope.type, RopeType::kLinear);
  EXPECT_EQ(windowed->rope.theta, 30000.0) << "rope_scaling replaces members of full_attention";
  EXPECT_EQ(windowed->window_rope->theta, 4000.0);
  json phi = Phi3Json();
  phi["rope_scaling"]["original_max_position_embeddings"] = 2048;
  EXPECT_EQ(ParseModelConfig(phi.dump(), "")->rope.original_max_position_embeddings, 4096);
}

TEST(ModelConfigTest, GeluOfTheFirstGemmaMeansTheTanhForm) {
  json config = LlamaJson();
  config["architectures"] = {"GemmaForCausalLM"};
  config["hidden_act"] = "gelu";
  const auto parsed = ParseModelConfig(config.dump(), "");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->activation, Activation::kGeluTanh);
}

TEST(ModelConfigTest, LongRopeHasShortFactorsAndTheOriginalContextUnlessAsked) {
  const std::string text = Phi3Json().dump();
  const auto brief = ParseModelConfig(text, "");
  ASSERT_TRUE(brief.ok()) << brief.status();
  EXPECT_EQ(brief->max_position_embeddings, 4096);
  EXPECT_THAT(brief->rope.length_factors, ElementsAre(1, 1, 1, 1, 1, 2));
  EXPECT_EQ(RotaryDim(brief->rope, brief->head_dim), 12);
  EXPECT_NEAR(brief->rope.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-12);
  const auto whole = ParseModelConfig(text, "", /*is_long=*/true);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->max_position_embeddings, 131072);
  EXPECT_THAT(whole->rope.length_factors, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(whole->rope.attention_factor, brief->rope.attention_factor);
  EXPECT_NE(Summary(*whole), Summary(*brief));
}

TEST(ModelConfigTest, WrongFactorsOfLongRopeAreRefused) {
  json config = Phi3Json();
  config["rope_scaling"]["short_factor"] = {1, 1, 1, 1, 1};
  EXPECT_THAT(ErrorOf(config),
              HasSubstr("rope_scaling.short_factor is [1,1,1,1,1], must be an array of 6 numbers in 0.001 .. 1024"));
  config["rope_scaling"]["short_factor"] = {1, 1, 1, 1, 1, "2"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("must be an array of 6 numbers"));
  config = Phi3Json();
  config["partial_rotary_factor"] = 0.7;
  EXPECT_THAT(ErrorOf(config), HasSubstr("partial_rotary_factor is 0.7, must be such that an even number of the 16"));
}

TEST(ModelConfigTest, GptOssHasATypeAndTheConstantsOfItsGate) {
  const json golden = json::parse(ReadWholeFile(GoldenModel("gpt_oss") + "/config.json"));
  const auto parse = [&](const char* field, const json& value) {
    json changed = golden;
    changed[field] = value;
    return ParseModelConfig(changed.dump(), "");
  };
  const auto untyped = parse("dtype", nullptr);
  ASSERT_TRUE(untyped.ok()) << untyped.status();
  EXPECT_EQ(untyped->torch_dtype, "bfloat16");
  EXPECT_EQ(parse("swiglu_limit", 5).status().message(), "config.json: swiglu_limit is 5, must be 7");
  EXPECT_EQ(parse("swiglu_alpha", 2).status().message(), "config.json: swiglu_alpha is 2, must be 1.702");
  EXPECT_EQ(parse("hidden_act", "gelu_new").status().message(),
            "config.json: hidden_act is \"gelu_new\", must be \"silu\"");
}

TEST(ModelConfigTest, GoldenConfigsAreAccepted) {
  for (const char* name :
       {"llama2",    "llama3",    "mistral", "qwen2",  "qwen3",    "yarn",       "olmo2",     "smollm3",      "granite",
        "seed_oss",  "ministral", "gemma",   "gemma2", "gemma3",   "phi3",       "phi3_long", "bfloat16",     "float16",
        "qwen3_moe", "qwen2_moe", "mixtral", "olmoe",  "glm4_moe", "granitemoe", "gpt_oss",   "gpt_oss_mxfp4"}) {
    const auto config = ParseModelConfig(ReadWholeFile(GoldenModel(name) + "/config.json"), "");
    EXPECT_TRUE(config.ok()) << name << ": " << config.status();
  }
}

// A field with a wrong value, and the whole error message. If the value is discarded, the field is removed.
struct BadField {
  const char* field;
  json value;
  const char* message;
};

TEST(ModelConfigTest, EveryBadFieldIsOneLineThatNamesItsValueAndWhatIsAllowed) {
  const json left_out = json(json::value_t::discarded);
  const BadField cases[] = {
      {"architectures", left_out,
       "config.json: architectures is missing, must be one of [\"LlamaForCausalLM\"], [\"MistralForCausalLM\"], "},
      {"architectures", {"GPT2LMHeadModel"}, "architectures is [\"GPT2LMHeadModel\"], must be one of ["},
      {"architectures", {"LlamaForCausalLM", "LlamaForCausalLM"}, "architectures is ["},
      {"architectures", "LlamaForCausalLM", "architectures is \"LlamaForCausalLM\", must be one of ["},
      {"model_type", "jetmoe",
       "config.json: model_type is \"jetmoe\", must be \"llama\", because architectures is [\"LlamaForCausalLM\"]"},
      {"num_experts", 8,
       "config.json: num_experts is 8, must be at most 1, because LlamaForCausalLM is a model without experts"},
      {"num_local_experts", 8, "config.json: num_local_experts is 8, must be at most 1, because"},
      {"n_routed_experts", "x", "n_routed_experts is \"x\", must be an integer in 0 .. 1048576"},
      {"hidden_size", "64", "hidden_size is \"64\", must be an integer in 1 .. 65536"},
      {"hidden_size", 0, "hidden_size is 0, must be an integer in 1 .. 65536"},
      {"hidden_size", -5, "hidden_size is -5, must be"},
      {"hidden_size", 64.0, "hidden_size is 64.0, must be"},
      {"hidden_size", 18446744073709551615u, "hidden_size is 18446744073709551615, must be"},
      {"hidden_size", 1 << 30, "hidden_size is 1073741824, must be"},
      {"hidden_size", 63, "head_dim is missing, must be an integer in 1 .. 256"},
      {"num_hidden_layers", 100000, "num_hidden_layers is 100000, must be an integer in 1 .. 1024"},
      {"num_attention_heads", 5000, "num_attention_heads is 5000, must be"},
      {"num_key_value_heads", 3, "num_key_value_heads is 3, must be a divisor of num_attention_heads, 8"},
      {"head_dim", 7, "head_dim (or hidden_size / num_attention_heads) is 7, must be even and at most 256"},
      {"vocab_size", 1ll << 40, "vocab_size is 1099511627776, must be"},
      {"max_position_embeddings", true, "max_position_embeddings is true, must be"},
      {"rms_norm_eps", 0, "rms_norm_eps is 0, must be a number in 1e-12 .. 0.1"},
      {"rope_theta", -1.0, "rope_theta is -1.0, must be a number in 1.5 .. 1e12"},
      {"rope_scaling", "yarn", "rope_scaling is \"yarn\", must be an object"},
      {"rope_scaling",
       {{"type", "mrope"}, {"factor", 2.0}},
       "rope_scaling.type is \"mrope\", must be default, linear, llama3, yarn, dynamic or longrope"},
      {"rope_scaling", {{"rope_type", "linear"}}, "rope_scaling.factor is missing, must be a number in 1 .. 1024"},
      {"rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}},
       "rope_scaling.high_freq_factor is 4, must be above low_freq_factor, 4"},
      {"rope_parameters",
       {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
       "rope_parameters.partial_rotary_factor is 0.5, must be 1"},
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}}}},
       "rope_parameters is {\"full_attention\":{\"rope_type\":\"default\"}}, must be one object for all layers"},
      {"is_causal", false, "is_causal is false, must be true"},
      {"use_bidirectional_attention", true, "use_bidirectional_attention is true, must be false"},
      {"transformers_weights", "other.safetensors", "transformers_weights is \"other.safetensors\", must be absent"},
      {"hidden_act", "gelu", "hidden_act is \"gelu\", must be \"silu\", \"swish\", \"gelu_pytorch_tanh\" or"},
      {"quantization_config",
       {{"quant_method", "bitsandbytes"}, {"bits", 4}},
       "quantization_config.quant_method is \"bitsandbytes\""},
      {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}, "quantization_config.group_size is missing"},
      {"tie_word_embeddings", "yes", "tie_word_embeddings is \"yes\", must be true or false"},
      {"attention_bias", 1, "attention_bias is 1, must be true or false"},
      {"eos_token_id", 512, "eos_token_id is 512, must be an integer in 0 .. 511 or an array of them"},
      {"eos_token_id", {2, "x"}, "eos_token_id is [2,\"x\"], must be"},
      {"bos_token_id", 512, "bos_token_id is 512, must be an integer in 0 .. 511"},
  };
  for (const auto& [field, value, message] : cases) {
    json config = LlamaJson();
    config.erase(field);
    if (!value.is_discarded()) config[field] = value;
    const std::string error = ErrorOf(config);
    EXPECT_THAT(error, HasSubstr(message));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
}

TEST(ModelConfigTest, AMissingNumberOfHeadsIsToldWhereTheAssumedOneDoesNotFit) {
  json config = LlamaJson();
  EXPECT_EQ(Parse(config)->assumed_heads, "");
  config.erase("num_key_value_heads");
  EXPECT_EQ(Parse(config)->assumed_heads, "num_key_value_heads is missing, so it counts as 8");
  config.erase("num_attention_heads");
  EXPECT_EQ(
      Parse(config)->assumed_heads,
      "num_attention_heads is missing, so it counts as 32 and num_key_value_heads is missing, so it counts as 32");
  config["num_key_value_heads"] = 5;
  EXPECT_THAT(ErrorOf(config), HasSubstr("num_key_value_heads is 5, must be a divisor of num_attention_heads, 32; "
                                         "num_attention_heads is missing, so it counts as 32"));
  config.erase("num_key_value_heads");
  config["hidden_size"] = 63;
  EXPECT_THAT(ErrorOf(config),
              HasSubstr("head_dim is missing, must be an integer in 1 .. 256; num_attention_heads is"));
}

TEST(ModelConfigTest, AModelTypeOrNoExpertsOfTheArchitectureAreAccepted) {
  json config = LlamaJson();
  config["model_type"] = "llama";
  config["num_experts"] = 1;
  config["num_local_experts"] = nullptr;
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
}

json Qwen3MoeJson() {
  json config = LlamaJson();
  config["architectures"] = {"Qwen3MoeForCausalLM"};
  config["num_experts"] = 16;
  config["num_experts_per_tok"] = 4;
  config["moe_intermediate_size"] = 24;
  return config;
}

std::vector<bool> LayersWithExperts(const json& config) {
  std::vector<bool> layers;
  const auto parsed = Parse(config);
  for (const LayerConfig& layer : parsed->layers) layers.push_back(layer.is_moe);
  return layers;
}

TEST(ModelConfigTest, ReadsExperts) {
  json json = Qwen3MoeJson();
  json["norm_topk_prob"] = true;
  const auto config = Parse(json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->moe.router.num_experts, 16);
  EXPECT_EQ(config->moe.router.top_k, 4);
  EXPECT_TRUE(config->moe.router.normalizes);
  EXPECT_EQ(config->moe.router.score, RouterScore::kSoftmax);
  EXPECT_EQ(config->moe.width, 24);
  EXPECT_EQ(config->intermediate_size, 172);
  EXPECT_THAT(OptionalPartsOf(*config), ElementsAre(OptionalPart::kExperts));
  EXPECT_THAT(Summary(*config), HasSubstr(" experts 4/16 width 24 score 0 normalizes 1 groups 1/1 scale 1 shared 0 in "
                                          "layers 3x1"));
}

TEST(ModelConfigTest, SomeLayersHaveNoExperts) {
  json config = Qwen3MoeJson();
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(true, true, true));
  config["mlp_only_layers"] = {0, 7};
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(false, true, true));
  config["decoder_sparse_step"] = 2;
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(false, true, false));
}

TEST(ModelConfigTest, ReadsTheGroupsTheScaleAndTheSharedExpertsOfGlm) {
  json json = LlamaJson();
  json["architectures"] = {"Glm4MoeForCausalLM"};
  json["n_routed_experts"] = 16;
  json["moe_intermediate_size"] = 24;
  json["n_shared_experts"] = 2;
  json["n_group"] = 4;
  json["topk_group"] = 2;
  json["routed_scaling_factor"] = 2.5;
  json["first_k_dense_replace"] = 2;
  const auto config = Parse(json);
  ASSERT_TRUE(config.ok()) << config.status();
  const RouterRule& router = config->moe.router;
  EXPECT_EQ(router.num_experts, 16);
  EXPECT_EQ(router.top_k, 8) << "the default";
  EXPECT_EQ(router.score, RouterScore::kSigmoid);
  EXPECT_TRUE(router.normalizes);
  EXPECT_EQ(router.num_groups, 4);
  EXPECT_EQ(router.top_groups, 2);
  EXPECT_EQ(router.scale, 2.5f);
  EXPECT_EQ(config->moe.shared_width, 48);
  EXPECT_FALSE(config->moe.has_shared_gate());
  EXPECT_TRUE(config->moe.has_choice_bias());
  EXPECT_EQ(RotaryDim(config->rope, config->head_dim), config->head_dim / 2) << "the default";
  EXPECT_EQ(config->qk_norm, QkNorm::kNone) << "the default";
  EXPECT_THAT(LayersWithExperts(json), ElementsAre(false, false, true));

  json["n_group"] = 3;
  EXPECT_THAT(ErrorOf(json),
              HasSubstr("n_group is 3, must be a divisor of the number of experts, 16, that leaves two"));
  json["n_group"] = 16;
  EXPECT_THAT(ErrorOf(json), HasSubstr("n_group is 16, must be a divisor of the number of experts, 16, that leaves"));
  json["n_group"] = 4;
  json["topk_group"] = 1;
  EXPECT_THAT(ErrorOf(json), HasSubstr("topk_group is 1, must be at least 2, because a token uses 8 of 16 experts"));
}

TEST(ModelConfigTest, ReadsTheSharedExpertAndTheWindowsOfQwen2) {
  json config = QwenJson("Qwen2MoeForCausalLM");
  config["shared_expert_intermediate_size"] = 40;
  EXPECT_EQ(Parse(config)->moe.shared_width, 40);
  EXPECT_TRUE(Parse(config)->moe.has_shared_gate());
  EXPECT_EQ(Parse(config)->moe.num_logits(), 61);
  EXPECT_TRUE(Parse(config)->qkv_bias);
  EXPECT_THAT(Windows(config), Each(0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(Windows(config), ElementsAre(100, 0, 0));
  config["max_window_layers"] = 3;
  EXPECT_THAT(Windows(config), ElementsAre(100, 0, 100));
}

TEST(ModelConfigTest, ExpertsOfMixtralHaveTheIntermediateSize) {
  json config = LlamaJson();
  config["architectures"] = {"MixtralForCausalLM"};
  EXPECT_EQ(Parse(config)->moe.width, 172);
  EXPECT_EQ(Parse(config)->moe.router.num_experts, 8);
  EXPECT_TRUE(Parse(config)->moe.router.normalizes);
  EXPECT_EQ(StacksOfExpert(*Parse(config), 1, 7).gate_up[1].name,
            "model.layers.1.block_sparse_moe.experts.7.w3.weight");
}

TEST(ModelConfigTest, ClippedProjectionsOfOlmoeAreRefused) {
  json config = LlamaJson();
  config["architectures"] = {"OlmoeForCausalLM"};
  config["clip_qkv"] = nullptr;
  EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
  config["clip_qkv"] = 8.0;
  EXPECT_THAT(ErrorOf(config), HasSubstr("clip_qkv is 8.0, must be null"));
}

TEST(ModelConfigTest, BadExpertsAreRefused) {
  const auto error = [](const char* field, const json& value) {
    json config = Qwen3MoeJson();
    config[field] = value;
    return ErrorOf(config);
  };
  EXPECT_THAT(error("num_experts", 0), HasSubstr("num_experts is 0, must be an integer in 1 .. 4096"));
  EXPECT_THAT(error("num_local_experts", 8),
              HasSubstr("num_local_experts is 8, must be 16, because num_experts is 16"));
  EXPECT_THAT(error("num_experts_per_tok", 17), HasSubstr("num_experts_per_tok is 17, must be an integer in 1 .. 16"));
  EXPECT_THAT(error("moe_intermediate_size", 0), HasSubstr("moe_intermediate_size is 0, must be an integer in 1 .. "));
  EXPECT_THAT(error("decoder_sparse_step", 0), HasSubstr("decoder_sparse_step is 0, must be"));
  EXPECT_THAT(error("mlp_only_layers", {-1}), HasSubstr("mlp_only_layers"));
}

TEST(ModelConfigTest, OddWindowsAreRefused) {
  json config = QwenJson("Qwen2ForCausalLM");
  config["use_sliding_window"] = true;
  config["layer_types"] = {"full_attention"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("layer_types is [\"full_attention\"], must be an array of 3 times"));
  config["layer_types"] = {"full_attention", "full_attention", "chunked_attention"};
  EXPECT_THAT(ErrorOf(config), HasSubstr("must be an array of 3 times full_attention or sliding_attention"));
  config.erase("layer_types");
  config["sliding_window"] = 0;
  EXPECT_THAT(ErrorOf(config), HasSubstr("sliding_window is 0, must be an integer in 1 .. 16777216"));
}

TEST(ModelConfigTest, BrokenJsonIsOneLine) {
  EXPECT_EQ(ParseModelConfig("{\"a\": ", "").status().message(), "config.json is not JSON in UTF-8: it ends too early");
  EXPECT_EQ(ParseModelConfig("", "").status().message(), "config.json is not JSON in UTF-8: it ends too early");
  EXPECT_EQ(ParseModelConfig("[1]", "").status().message(), "config.json: must be an object");
  EXPECT_EQ(ParseModelConfig("{\"a\": 1, \"a\": 2}", "").status().message(),
            "config.json has the key \"a\" twice in one object");
  EXPECT_EQ(ParseModelConfig(std::string(1000000, '['), "").status().message(),
            "config.json is nested deeper than 32 levels");
  EXPECT_EQ(Parse(LlamaJson(), "3").status().message(), "generation_config.json: must be an object");
}

TEST(ModelConfigTest, AnyFlippedByteIsReadOrRefusedButNeverCrashes) {
  const std::string good = ReadWholeFile(GoldenModel("qwen2") + "/config.json");
  int num_read = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int flip = 1; flip < 256; flip += 24) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(flip);
      const auto config = ParseModelConfig(bad, bad);
      num_read += config.ok();
      if (config.ok()) continue;
      EXPECT_THAT(std::string(config.status().message()), Not(HasSubstr("\n")));
    }
  }
  EXPECT_GT(num_read, 0) << "a changed name of an unused field is still a good config";
}

TEST(ModelConfigTest, LongValuesAreCutInMessages) {
  json config = LlamaJson();
  config["hidden_act"] = std::string(100000, 'x');
  EXPECT_LT(ErrorOf(config).size(), 200);
}

}  // namespace
}  // namespace quire
