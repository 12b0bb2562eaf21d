// SPDX-License-Identifier: Apache-2.0

#include "worker/model/unsupported_model.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/config.h"

namespace quire {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kExperts[] = ": this mixture of experts is not supported";
constexpr char kState[] = ": layers with a recurrent state are not supported";
constexpr char kMedia[] = ": images, audio and video are not supported";
constexpr char kEncoder[] = ": encoders are not supported, only decoders that generate text";

std::string RefusalOf(const std::string& config) {
  const auto result = ParseModelConfig(config, "");
  EXPECT_FALSE(result.ok()) << config;
  return std::string(result.status().message());
}

struct PublishedModel {
  const char* architecture;
  const char* type;
  const char* fields;                // Of config.json, besides these two.
  std::vector<std::string> reasons;  // What the error must say.
};

// The fields by which published models differ from those that are supported, with their values.
const std::vector<PublishedModel>& PublishedModels() {
  static const auto* const models = new std::vector<PublishedModel>{
      {"JetMoeForCausalLM",
       "jetmoe",
       R"("num_local_experts": 8, "num_experts_per_tok": 2)",
       {absl::StrCat("; num_local_experts is 8", kExperts)}},
      {"DeepseekV3ForCausalLM",
       "deepseek_v3",
       R"("n_routed_experts": 256, "kv_lora_rank": 512, "q_lora_rank": 1536)",
       {absl::StrCat("; n_routed_experts is 256", kExperts),
        "; kv_lora_rank is 512: latent attention (MLA) is not supported"}},
      {"PhimoeForCausalLM",
       "phimoe",
       R"("num_local_experts": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128)",
       {absl::StrCat("; num_local_experts is 16", kExperts)}},
      {"Gemma4ForConditionalGeneration",
       "gemma4",
       R"("text_config": {"model_type": "gemma4_text"}, "vision_config": {"a": 1}, "audio_config": null)",
       {absl::StrCat(R"(; vision_config is {"a":1})", kMedia),
        R"(; text_config.model_type is "gemma4_text": the text model inside of a larger model of this kind is not )"
        "read;"}},
      {"Llama4ForConditionalGeneration",
       "llama4",
       R"("text_config": {"model_type": "llama4_text", "num_local_experts": 16}, "vision_config": {"a": 1})",
       {absl::StrCat(R"(; vision_config is {"a":1})", kMedia),
        absl::StrCat("; text_config.num_local_experts is 16", kExperts)}},
      {"Qwen3NextForCausalLM",
       "qwen3_next",
       R"("num_experts": 512, "linear_num_value_heads": 32, "full_attention_interval": 4)",
       {absl::StrCat("; linear_num_value_heads is 32", kState), absl::StrCat("; num_experts is 512", kExperts)}},
      {"Qwen3_5ForConditionalGeneration",
       "qwen3_5",
       R"("text_config": {"model_type": "qwen3_5_text", "layer_types": ["linear_attention", "full_attention"]})",
       {absl::StrCat(R"(; text_config.layer_types[0] is "linear_attention")", kState)}},
      {"Mamba2ForCausalLM",
       "mamba2",
       R"("state_size": 128, "conv_kernel": 4, "n_groups": 8)",
       {absl::StrCat("; state_size is 128", kState)}},
      {"JambaForCausalLM",
       "jamba",
       R"("mamba_d_state": 16, "mamba_d_conv": 4, "num_experts": 16)",
       {absl::StrCat("; mamba_d_state is 16", kState), absl::StrCat("; num_experts is 16", kExperts)}},
      {"GraniteMoeHybridForCausalLM",
       "granitemoehybrid",
       R"("layer_types": ["attention", "mamba"], "mamba_d_state": 128, "num_local_experts": 64)",
       {absl::StrCat(R"(; layer_types[1] is "mamba")", kState), absl::StrCat("; num_local_experts is 64", kExperts)}},
      {"Lfm2ForCausalLM",
       "lfm2",
       R"("layer_types": ["conv", "full_attention"], "conv_L_cache": 3)",
       {absl::StrCat(R"(; layer_types[0] is "conv")", kState)}},
      {"BertForMaskedLM", "bert", R"("type_vocab_size": 2)", {absl::StrCat(R"(; model_type is "bert")", kEncoder)}},
      {"T5ForConditionalGeneration",
       "t5",
       R"("is_encoder_decoder": true, "num_decoder_layers": 8)",
       {absl::StrCat("; is_encoder_decoder is true", kEncoder)}},
      {"Qwen2VLForConditionalGeneration",
       "qwen2_vl",
       R"("vision_config": {"depth": 32}, "hidden_size": 2048, "vision_start_token_id": 151652)",
       {absl::StrCat(R"(; vision_config is {"depth":32})", kMedia)}},
      {"Mistral3ForConditionalGeneration",
       "mistral3",
       R"("text_config": {"model_type": "mistral4", "n_routed_experts": 128}, "vision_config": {"a": 1})",
       {absl::StrCat("; text_config.n_routed_experts is 128", kExperts)}},
      {"LlavaForConditionalGeneration",
       "llava",
       R"("text_config": {"model_type": "vicuna"}, "vision_config": {"a": 1})",
       {R"(; text_config.model_type is "vicuna": this text model is not supported;)"}},
      {"LlavaNextForConditionalGeneration",
       "llava_next",
       R"("text_config": {"model_type": "mistral"}, "vision_config": {"a": 1})",
       {absl::StrCat(R"(; vision_config is {"a":1})", kMedia),
        R"(; text_config.model_type is "mistral": the text model inside of a larger model of this kind is not read, )"
        "but a checkpoint of this text model alone (MistralForCausalLM) is supported"}},
  };
  return *models;
}

TEST(UnsupportedModelTest, TheErrorSaysWhatThePublishedModelHasThatIsNotSupported) {
  for (const PublishedModel& model : PublishedModels()) {
    const std::string error = RefusalOf(absl::StrCat(R"({"architectures": [")", model.architecture,
                                                     R"("], "model_type": ")", model.type, "\", ", model.fields, "}"));
    EXPECT_THAT(error, StartsWith(absl::StrCat(R"(config.json: architectures is [")", model.architecture,
                                               R"("] and model_type is ")", model.type, "\"; ")));
    for (const std::string& reason : model.reasons) EXPECT_THAT(error, HasSubstr(reason));
    EXPECT_THAT(error, EndsWith("; docs/serving.md#models lists the supported models"));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
}

TEST(UnsupportedModelTest, AModelWithoutSuchPartsGetsTheListOfArchitectures) {
  const std::string error = RefusalOf(
      R"({"architectures": ["GraniteMoeHybridForCausalLM"], "layer_types": ["attention"], "mamba_d_state": 128,
          "num_local_experts": 0, "vision_config": null, "is_encoder_decoder": false})");
  EXPECT_THAT(error, StartsWith(R"(config.json: architectures is ["GraniteMoeHybridForCausalLM"], must be one of [")"));
  EXPECT_THAT(error,
              EndsWith(R"(["SmolVLMForConditionalGeneration"]; docs/serving.md#models lists the supported models)"));
}

TEST(UnsupportedModelTest, ALayerOfAnUnknownTypeIsNotTakenForOneWithAState) {
  const std::string types = R"({"architectures": ["X"], "layer_types": ["full_attention", "sparse_attention"])";
  EXPECT_THAT(RefusalOf(types + "}"), HasSubstr(R"(is ["X"], must be one of [)"));
  EXPECT_THAT(RefusalOf(types + R"(, "mamba_d_state": 16})"), HasSubstr(absl::StrCat("; mamba_d_state is 16", kState)));
}

TEST(UnsupportedModelTest, ModelTypeAloneIsEnough) {
  EXPECT_THAT(
      RefusalOf(R"({"model_type": "bert"})"),
      StartsWith(R"(config.json: architectures is missing and model_type is "bert"; model_type is "bert": enc)"));
  EXPECT_THAT(RefusalOf("{}"), StartsWith("config.json: architectures is missing, must be one of ["));
}

TEST(UnsupportedModelTest, FieldsOfOtherTypesAreNoTrap) {
  for (const char* fields :
       {R"("layer_types": [1, null, {}])", R"("layer_types": "mamba")", R"("text_config": [1])",
        R"("vision_config": "x")", R"("model_type": 5)", R"("text_config": {"model_type": {}, "layer_types": [[]]})"}) {
    EXPECT_THAT(RefusalOf(absl::StrCat(R"({"architectures": ["X"], )", fields, "}")), HasSubstr(R"(is ["X"])"));
  }
}

}  // namespace
}  // namespace quire
