// SPDX-License-Identifier: Apache-2.0

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/forwarding_backend.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/stored_tensors.h"
#include "worker/model/checkpoint.h"
#include "worker/model/model.h"
#include "worker/model/safetensors.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// The tests break a copy of the small Llama checkpoint.
class LoadModelTest : public testing::Test {
 protected:
  LoadModelTest() : backend_(MakeCpuBackend(1)), weights_(ReadWholeFile(GoldenModel("llama2") + "/model.safetensors")) {
    directory_.CopyFrom(GoldenModel("llama2"), "config.json");
    directory_.Write("model.safetensors", weights_);
  }

  absl::StatusOr<std::unique_ptr<Model>> Load() { return LoadModel(directory_.path(), backend_.get()); }

  std::string ErrorOfLoad() {
    const auto model = Load();
    EXPECT_FALSE(model.ok());
    return std::string(model.status().message());
  }

  // Replaces the first occurrence after `anchor`. The header keeps its length.
  void Replace(const std::string& anchor, const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t start = weights_.find(anchor);
    ASSERT_NE(start, std::string::npos) << anchor;
    const size_t found = weights_.find(from, start);
    ASSERT_NE(found, std::string::npos) << from;
    weights_.replace(found, from.size(), to);
    directory_.Write("model.safetensors", weights_);
  }

  void EditConfig(const std::string& from, const std::string& to) {
    std::string config = ReadWholeFile(directory_.path() + "/config.json");
    const size_t found = config.find(from);
    ASSERT_NE(found, std::string::npos) << from;
    directory_.Write("config.json", config.replace(found, from.size(), to));
  }

  // The place of a tensor in weights_.
  std::pair<size_t, size_t> PlaceOf(const std::string& name) const {
    const auto file = ParseSafetensors(weights_, "model.safetensors");
    for (const Tensor& tensor : *file) {
      if (tensor.name == name) return {tensor.bytes.data() - weights_.data(), tensor.bytes.size()};
    }
    ADD_FAILURE() << name << " is not there";
    return {0, 0};
  }

  const std::unique_ptr<Backend> backend_;
  const TestDirectory directory_;
  std::string weights_;
};

TEST_F(LoadModelTest, AWeightThatIsNotFiniteIsFoundAndItsTensorNamed) {
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const auto file = ParseSafetensors(weights_, "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const Tensor& tensor : *file) {
    if (tensor.name != name) continue;
    ASSERT_EQ(tensor.dtype, "F32");
    const size_t at = tensor.bytes.data() - weights_.data() + 4 * 77;
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::string broken = weights_;
      std::memcpy(broken.data() + at, &value, sizeof(value));
      directory_.Write("model.safetensors", broken);
      EXPECT_THAT(ErrorOfLoad(), AllOf(HasSubstr(name), HasSubstr("element 77 is infinite or not a number")));
    }
    return;
  }
  FAIL() << name << " is not there";
}

TEST_F(LoadModelTest, AMissingNumberOfHeadsIsNamedBeforeTheTensorThatDoesNotFit) {
  const std::string path = directory_.path();
  for (const char* name : {"config.json", "model.safetensors"}) directory_.CopyFrom(GoldenModel("llama3"), name);
  const nlohmann::json config = nlohmann::json::parse(ReadWholeFile(path + "/config.json"));
  nlohmann::json without = config;
  without.erase("num_key_value_heads");
  directory_.Write("config.json", without.dump());
  const int num_heads = config["num_attention_heads"];
  EXPECT_THAT(ErrorOfLoad(), testing::StartsWith(absl::StrCat(
                                 path, "/config.json: num_key_value_heads is missing, so it counts as ", num_heads,
                                 ", which may not fit the weights: tensor model.layers.0.self_attn.k_proj")));
  without = config;
  without.erase("num_attention_heads");
  directory_.Write("config.json", without.dump());
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("config.json: num_attention_heads is missing, so it counts as 32"));
  directory_.Write("config.json", config.dump());
  EXPECT_TRUE(Load().ok()) << Load().status();
}

// A device that lacks everything that only some models need.
class PlainBackend : public ForwardingBackend {
 public:
  PlainBackend() : ForwardingBackend(MakeCpuBackend(1)) {}
  std::string Description() const override { return "plain device"; }
  bool Has(OptionalPart) const override { return false; }
};

TEST_F(LoadModelTest, AModelThatTheDeviceCannotRunIsRefusedByName) {
  PlainBackend plain;
  EXPECT_EQ(
      LoadModel(GoldenModel("olmo2"), &plain).status().message(),
      "Olmo2ForCausalLM needs norms of the outputs of attention and MLP, norms of whole projections of Q and K, and "
      "plain device has no kernels for that; a CPU has them");
  EXPECT_EQ(
      LoadModel(GoldenModel("granite"), &plain).status().message(),
      "GraniteForCausalLM needs scaled embeddings, scaled products, and plain device has no kernels for that; a CPU "
      "has them");
  EXPECT_THAT(
      std::string(LoadModel(GoldenModel("gemma2"), &plain).status().message()),
      HasSubstr("needs scaled embeddings, softcapping, the activation gelu_pytorch_tanh, norms of the outputs of"));
  EXPECT_EQ(LoadModel(GoldenModel("qwen3_moe"), &plain).status().message(),
            "Qwen3MoeForCausalLM needs a mixture of experts, and plain device has no kernels for that; a CPU has them");
  EXPECT_THAT(std::string(LoadModel(GoldenModel("phi3"), &plain).status().message()),
              HasSubstr("needs a rotary embedding of a part of each head, and"));
  for (const char* name : {"llama3", "qwen3", "smollm3", "seed_oss", "ministral"}) {
    EXPECT_TRUE(LoadModel(GoldenModel(name), &plain).ok()) << name;
  }
}

TEST_F(LoadModelTest, LayersThatTheConfigLeavesOutAreAWarningWithBothNumbers) {
  EditConfig("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Load().ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              ContainsRegex("W[^\n]*config.json has 1 layer .num_hidden_layers., and the weights have 2; those from "
                            "model.layers.1 on are not used\n"));
  EXPECT_THAT(log, testing::Not(HasSubstr("unknown tensor"))) << "their tensors are known";
  EditConfig("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Load().ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("num_hidden_layers")));
}

TEST_F(LoadModelTest, UnknownTensorsAreCountedWithoutThoseOfLayersThatTheConfigLeavesOut) {
  EditConfig("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  Replace("{", "lm_head.weight", "lm_tail.weight");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Load().ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("ignored 1 unknown tensor, the first is lm_tail.weight\n"));
}

TEST_F(LoadModelTest, TokenizerFilesComeAlong) {
  directory_.Write("tokenizer.json", "{\"model\": 1}");
  directory_.Write("tokenizer_config.json", "{}");
  directory_.Write("generation_config.json", "{\"top_k\": 20}");
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tokenizer_files.size(), 3u);
  EXPECT_EQ((*model)->tokenizer_files[2].name, "generation_config.json");
  EXPECT_EQ((*model)->tokenizer_files[2].contents, "{\"top_k\": 20}");
  EXPECT_EQ((*model)->tokenizer_files[0].name, "tokenizer.json");
  EXPECT_EQ((*model)->tokenizer_files[0].contents, "{\"model\": 1}");
  EXPECT_EQ((*model)->tokenizer_files[1].name, "tokenizer_config.json");
}

TEST_F(LoadModelTest, TheChatTemplateComesAlongAndIsNotChecked) {
  directory_.Write("tokenizer.json", "{\"model\": 1}");
  directory_.Write("chat_template.jinja", "{% broken");
  directory_.Write("chat_template.json", "");
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tokenizer_files.size(), 2u);
  EXPECT_EQ((*model)->tokenizer_files[1].name, "chat_template.jinja");
  EXPECT_EQ((*model)->tokenizer_files[1].contents, "{% broken");
}

TEST_F(LoadModelTest, NamedChatTemplatesAndFilesOfOlderCheckpointsComeAlong) {
  std::filesystem::create_directory(directory_.path() + "/additional_chat_templates");
  directory_.Write("additional_chat_templates/tool_use.jinja", "tools");
  directory_.Write("additional_chat_templates/rag.jinja", "rag");
  directory_.Write("additional_chat_templates/readme.md", "no template");
  directory_.Write("special_tokens_map.json", "{}");
  directory_.Write("added_tokens.json", "{}");
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<std::string> names;
  for (const TokenizerFile& file : (*model)->tokenizer_files) names.push_back(file.name);
  EXPECT_THAT(names,
              testing::ElementsAre("additional_chat_templates/rag.jinja", "additional_chat_templates/tool_use.jinja",
                                   "special_tokens_map.json", "added_tokens.json"));
  EXPECT_EQ((*model)->tokenizer_files[1].contents, "tools");
  for (int i = 0; i < 64; ++i) {
    directory_.Write("additional_chat_templates/" + std::to_string(i) + ".jinja", "x");
  }
  EXPECT_THAT(std::string(Load().status().message()), HasSubstr("has more than 64 chat templates"));
}

TEST_F(LoadModelTest, AnAdapterBesideTheWeightsIsRefused) {
  directory_.Write("adapter_config.json", "{}");
  EXPECT_THAT(std::string(Load().status().message()), HasSubstr("has adapter_config.json; it is a LoRA adapter"));
}

TEST_F(LoadModelTest, ABrokenTokenizerFileIsNamed) {
  directory_.Write("tokenizer.json", "{not json");
  EXPECT_EQ(ErrorOfLoad(), directory_.path() + "/tokenizer.json is not valid JSON");
  directory_.Write("tokenizer.json", "{}");
  directory_.Write("tokenizer.model", "");
  EXPECT_EQ(ErrorOfLoad(), directory_.path() + "/tokenizer.model is empty");
}

TEST_F(LoadModelTest, ABrokenConfigIsNamedWithItsFolder) {
  directory_.Write("config.json", "{\"a\": ");
  EXPECT_EQ(ErrorOfLoad(), directory_.path() + "/config.json is not JSON in UTF-8: it ends too early");
}

TEST_F(LoadModelTest, AModelWithoutATokenizerIsLoadedWithOneWarning) {
  const std::string warning = "clients can send and receive token ids only";
  const auto log_of_load = [this] {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(Load().ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_of_load(), HasSubstr(warning));
  directory_.Write("tokenizer_config.json", "{}");
  EXPECT_THAT(log_of_load(), HasSubstr(warning)) << "this file alone is no tokenizer";
  directory_.Write("qwen.tiktoken", "IQ== 0");
  EXPECT_THAT(log_of_load(), HasSubstr("qwen.tiktoken is not read"));
  directory_.Write("tokenizer.json", "{}");
  EXPECT_THAT(log_of_load(), Not(HasSubstr(warning)));
}

TEST_F(LoadModelTest, FingerprintTellsEveryWeightAndFieldApart) {
  const std::string original = (*Load())->weights.fingerprint;
  EXPECT_EQ((*Load())->weights.fingerprint, original);
  weights_.back() ^= 1;
  directory_.Write("model.safetensors", weights_);
  const std::string other_weight = (*Load())->weights.fingerprint;
  EXPECT_NE(other_weight, original);
  EditConfig("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-06");
  EXPECT_NE((*Load())->weights.fingerprint, other_weight);
}

// Workers with either of both checkpoints can serve together.
TEST_F(LoadModelTest, AWrapperHasTheFingerprintOfItsTextModelAlone) {
  for (const auto& [name, architecture] : {std::pair("mistral3_vision", "MistralForCausalLM"),
                                           {"ministral3_vision", "Ministral3ForCausalLM"},
                                           {"gemma3_vision", "Gemma3ForCausalLM"}}) {
    SCOPED_TRACE(name);
    const std::string wrapper = GoldenModel(name);
    const auto config = nlohmann::json::parse(ReadWholeFile(wrapper + "/config.json"));
    nlohmann::json text = config["text_config"];
    text["architectures"] = {architecture};
    text["tie_word_embeddings"] = config["tie_word_embeddings"];
    directory_.Write("config.json", text.dump());
    const auto checkpoint = Checkpoint::Open(wrapper);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    Tensors tensors;
    for (const std::string& tensor_name : checkpoint->Names()) {
      const Tensor& tensor = *checkpoint->Find(tensor_name);
      tensors[tensor_name] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
    }
    directory_.Write("model.safetensors", SafetensorsFileOf(tensors));
    const auto alone = Load();
    const auto wrapped = LoadModel(wrapper, backend_.get());
    ASSERT_TRUE(alone.ok() && wrapped.ok()) << alone.status() << wrapped.status();
    EXPECT_EQ((*alone)->weights.fingerprint, (*wrapped)->weights.fingerprint);
  }
}

TEST_F(LoadModelTest, MissingFilesAreNamed) {
  EXPECT_THAT(std::string(LoadModel("/no/such/place", backend_.get()).status().message()),
              testing::StrEq("there is no folder /no/such/place"));
  EXPECT_EQ(LoadModel(directory_.path() + "/config.json", backend_.get()).status().message(),
            directory_.path() + "/config.json is not a folder");
  const TestDirectory empty;
  empty.CopyFrom(GoldenModel("llama2"), "config.json");
  EXPECT_THAT(std::string(LoadModel(empty.path(), backend_.get()).status().message()),
              HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
}

TEST_F(LoadModelTest, WhatIsNotACheckpointIsRecognised) {
  const auto error_of = [this](const std::string& path) {
    return std::string(LoadModel(path, backend_.get()).status().message());
  };
  EXPECT_THAT(error_of("organisation/Model-0.6B"), HasSubstr("write hf:organisation/Model-0.6B, after"));
  EXPECT_THAT(error_of("/no/such/place"), Not(HasSubstr("hub")));
  const auto error_with = [&](const std::vector<std::string>& files, const std::string& file = "") {
    const TestDirectory directory;
    for (const std::string& name : files) directory.Write(name, "{}");
    return error_of(directory.path() + file);
  };
  EXPECT_THAT(error_with({"model.Q4_K_M.gguf"}),
              HasSubstr("config.json; model.Q4_K_M.gguf is a GGUF file, give its path: "));
  EXPECT_THAT(error_with({"adapter_config.json", "adapter_model.safetensors"}), HasSubstr("it is a LoRA adapter"));
  EXPECT_THAT(error_with({"params.json", "consolidated.00.pth"}), HasSubstr("original checkpoint of Meta or Mistral"));
  EXPECT_THAT(error_of("~/model"), HasSubstr("only where a shell replaces it"));
  const TestDirectory cache;
  std::filesystem::create_directories(cache.path() + "/refs");
  std::filesystem::create_directories(cache.path() + "/snapshots/4d7a");
  EXPECT_THAT(error_of(cache.path()), HasSubstr("give one of its snapshots: " + cache.path() + "/snapshots/4d7a"));
  const TestDirectory pickle;
  pickle.CopyFrom(GoldenModel("llama2"), "config.json");
  pickle.Write("pytorch_model-00001-of-00002.bin", "PK");
  EXPECT_THAT(error_of(pickle.path()), HasSubstr("pytorch_model-00001-of-00002.bin is a PyTorch pickle"));
}

TEST_F(LoadModelTest, APointerOfGitLfsIsRecognised) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n";
  directory_.Write("model.safetensors", pointer);
  EXPECT_EQ(ErrorOfLoad(), directory_.path() +
                               "/model.safetensors is a pointer of Git LFS, and the file itself is not "
                               "here; `git lfs pull` downloads it");
  directory_.Write("tokenizer.json", pointer);
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("/tokenizer.json is a pointer of Git LFS"));
}

TEST_F(LoadModelTest, AMissingTensorIsNamedWithItsShape) {
  Replace("model.layers.1.self_attn.k_proj.weight", "k_proj", "x_proj");
  EXPECT_EQ(ErrorOfLoad(),
            directory_.path() +
                ": tensor model.layers.1.self_attn.k_proj.weight is missing, expected [32, 32] of F32, BF16 or F16");
}

TEST_F(LoadModelTest, AMissingOutputMatrixIsOnlyFineWhenTied) {
  Replace("lm_head.weight", "lm_head", "xm_head");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("tensor lm_head.weight is missing, expected [96, 32]"));
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_TRUE(Load().ok());
}

// As the checkpoints of Qwen3-Embedding, which were saved without the output matrix of Qwen3ForCausalLM.
TEST_F(LoadModelTest, ABaseModelHasOtherNamesAndNoOutputMatrix) {
  const std::string whole = (*Load())->weights.fingerprint;
  // JSON may have spaces.
  for (size_t at = 0; (at = weights_.find("\"model.", at)) != std::string::npos;) weights_.replace(at, 7, "      \"");
  directory_.Write("model.safetensors", weights_);
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.fingerprint, whole) << "it has an output matrix";
  EXPECT_FALSE((*model)->config.lacks_output);
  Replace("lm_head.weight", "lm_head", "xm_head");
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->config.lacks_output);
  EXPECT_EQ((*model)->weights.lm_head, nullptr);
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->config.lacks_output) << "the embedding is the output matrix";
}

TEST_F(LoadModelTest, ABaseArchitectureIsThatOfItsDecoder) {
  const std::string whole = (*Load())->weights.fingerprint;
  EditConfig("LlamaForCausalLM", "LlamaModel");
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.fingerprint, whole);
  EditConfig("LlamaModel", "BertModel");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("architectures is [\"BertModel\"]"));
}

TEST_F(LoadModelTest, TiedMatricesThatDifferAreBothUsedWithAWarning) {
  const std::string untied = (*Load())->weights.fingerprint;
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  testing::internal::CaptureStderr();
  const auto model = Load();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("(tie_word_embeddings), but lm_head.weight and model.embed_tokens.weight differ"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->config.tie_word_embeddings);
  EXPECT_NE((*model)->weights.lm_head, nullptr);
  EXPECT_EQ((*model)->weights.fingerprint, untied) << "the same as without the wrong field";
}

TEST_F(LoadModelTest, TiedMatricesThatAreEqualAreOne) {
  const auto [embedding, size] = PlaceOf("model.embed_tokens.weight");
  weights_.replace(PlaceOf("lm_head.weight").first, size, weights_, embedding, size);
  directory_.Write("model.safetensors", weights_);
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  testing::internal::CaptureStderr();
  const auto model = Load();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("tie_word_embeddings")));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->config.tie_word_embeddings);
  EXPECT_EQ((*model)->weights.lm_head, nullptr);
}

TEST_F(LoadModelTest, TiedMatricesMayHaveTheNameOfTheOutputMatrix) {
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  Replace("model.embed_tokens.weight", "embed_tokens", "embed_tokenx");
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.lm_head, nullptr);
  Replace("lm_head.weight", "lm_head", "lm_tail");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("tensor model.embed_tokens.weight is missing"));
}

TEST_F(LoadModelTest, ABiasOrNormThatTheConfigDeniesIsRefusedUnlessItChangesNothing) {
  EditConfig("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");  // The tensors of the other one get new names.
  const std::string bias = "model.layers.0.mlp.gate_proj.bias", norm = "model.layers.0.self_attn.q_norm.weight";
  Replace("\"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight", bias);
  EXPECT_THAT(ErrorOfLoad(), AllOf(HasSubstr("tensor " + bias +
                                             " is F32 [64, 32], and by config.json a model of "
                                             "LlamaForCausalLM has no such tensor"),
                                   HasSubstr("mlp_bias")));
  const auto [begin, size] = PlaceOf(bias);
  weights_.replace(begin, size, std::string(size, '\0'));
  directory_.Write("model.safetensors", weights_);
  EXPECT_TRUE(Load().ok()) << Load().status();

  Replace("\"model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight", norm);
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("tensor " + norm + " is F32 [32, 32], and by config.json"));
  const auto [norm_begin, norm_size] = PlaceOf(norm);
  for (size_t i = 0; i < norm_size; i += sizeof(float)) {
    const float one = 1;
    std::memcpy(&weights_[norm_begin + i], &one, sizeof(one));
  }
  directory_.Write("model.safetensors", weights_);
  EXPECT_TRUE(Load().ok()) << Load().status();
}

TEST_F(LoadModelTest, AQuantizedOutputMatrixIsRefusedByName) {
  EditConfig("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EditConfig("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  Replace("\"lm_head.weight", "lm_head.weight", "lm_head.packed");
  EXPECT_THAT(ErrorOfLoad(), AllOf(HasSubstr("tensor lm_head.packed is F32 [96, 32]"),
                                   HasSubstr("a quantized output matrix is not supported")));
}

TEST_F(LoadModelTest, AWrongShapeIsShownBesideTheExpectedOne) {
  Replace("\"lm_head.weight\"", "[96,32]", "[32,96]");
  EXPECT_EQ(ErrorOfLoad(),
            directory_.path() + ": tensor lm_head.weight is F32 [32, 96], expected [96, 32] of F32, BF16 or F16");
}

TEST_F(LoadModelTest, AnIntegerTypeIsRefused) {
  Replace("\"lm_head.weight\"", "\"F32\"", "\"I32\"");
  EXPECT_EQ(ErrorOfLoad(),
            directory_.path() + ": tensor lm_head.weight is I32 [96, 32], expected [96, 32] of F32, BF16 or F16");
}

TEST_F(LoadModelTest, AConfigOfAnotherShapeIsRefused) {
  EditConfig("\"intermediate_size\": 64", "\"intermediate_size\": 65");
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr("tensor model.layers.0.mlp.gate_proj.weight is F32 [64, 32], expected [65, 32]"));
}

TEST_F(LoadModelTest, TensorsAtOddAddressesAreCopied) {
  const uint64_t header_bytes = static_cast<uint8_t>(weights_[0]) | static_cast<uint8_t>(weights_[1]) << 8;
  std::string header = weights_.substr(8, header_bytes) + " ";
  const std::string data = weights_.substr(8 + header_bytes);
  const std::string original = (*Load())->weights.fingerprint;
  directory_.Write("model.safetensors", SafetensorsFileOf(header, 0) + data);
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.fingerprint, original);
}

TEST_F(LoadModelTest, ShardsLoadLikeOneFile) {
  const std::string original = (*Load())->weights.fingerprint;
  directory_.Write("model-00001-of-00001.safetensors", weights_);
  std::filesystem::remove(directory_.path() + "/model.safetensors");
  directory_.Write("model.safetensors.index.json",
                   R"({"weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}})");
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.fingerprint, original);
}

TEST_F(LoadModelTest, AFlippedHeaderByteIsLoadedOrRefusedButNeverCrashes) {
  SetLogLevel(LogLevel::kError);
  const size_t header_bytes = static_cast<uint8_t>(weights_[0]) | static_cast<uint8_t>(weights_[1]) << 8;
  int num_refused = 0;
  for (size_t i = 0; i < 8 + header_bytes; i += 3) {
    std::string bad = weights_;
    bad[i] ^= static_cast<char>(1 + i % 255);
    directory_.Write("model.safetensors", bad);
    const auto model = Load();
    if (model.ok()) continue;
    ++num_refused;
    EXPECT_THAT(std::string(model.status().message()), Not(HasSubstr("\n")));
  }
  SetLogLevel(LogLevel::kInfo);
  EXPECT_GT(num_refused, 300);
}

}  // namespace
}  // namespace quire
