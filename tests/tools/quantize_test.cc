// SPDX-License-Identifier: Apache-2.0

// Checkpoints that quire-quantize writes from the small Llama model.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/fp8.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/process.h"
#include "tests/test_paths.h"
#include "tests/worker/model/quantized_checkpoint.h"
#include "tests/worker/model/test_backends.h"
#include "tools/quantize/quantized_writer.h"
#include "worker/model/checkpoint.h"
#include "worker/model/load_progress.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire::quantize {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class QuantizeTest : public CheckpointTest {
 protected:
  // The folder does not exist before, and is removed at the end of the test.
  std::string Output() const { return directory_.path() + "/written"; }

  absl::StatusOr<WrittenCheckpoint> Write(Quantization width, const std::string& model = GoldenModel("llama2"),
                                          int64_t max_file_bytes = int64_t{1} << 30) const {
    return WriteQuantizedCheckpoint(
        {.model = model, .output = Output(), .width = width, .max_file_bytes = max_file_bytes});
  }

  std::vector<Logits> LogitsOfWritten(Int4Inputs inputs = Int4Inputs::kInt8) const {
    const auto model = LoadModel(Output(), backend_.get(), /*progress=*/nullptr, {.int4_inputs = inputs});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? LogitsOf(**model) : std::vector<Logits>();
  }

  // Compares the written checkpoint of int8 with what --quantize=int8 makes of the source.
  void ExpectLogitsOfRoundedAtLoad(const std::string& source) const {
    const auto written = LoadModel(Output(), backend_.get());
    const auto rounded = LoadModel(source, backend_.get(), /*progress=*/nullptr, {.layers = Quantization::kInt8});
    ASSERT_TRUE(written.ok() && rounded.ok()) << written.status() << rounded.status();
    const auto logits_of = [&](const Model& model) {
      return PagedRunner(&model, backend_.get(), {}).Prefill(0, {1, 5, 17, 3, 60, 33, 2, 4, 4, 61}, 4);
    };
    EXPECT_EQ(logits_of(**written), logits_of(**rounded));
  }

  // Multiplies all rows and columns, except for the vocabulary, by `times`, and draws weights.
  void MakeWider(int times) {
    for (const char* field : {"hidden_size", "intermediate_size"}) config_[field] = config_[field].get<int>() * times;
    config_["head_dim"] = 8 * times;
    std::mt19937 random(1);
    for (auto& [name, tensor] : tensors_) {
      size_t count = 1;
      for (int64_t& size : tensor.shape) count *= size *= size == 96 ? 1 : times;
      std::vector<float> values(count);
      std::normal_distribution<float> weight(0, 0.1f);
      for (float& value : values) value = weight(random);
      tensor.bytes = BytesOf(values);
    }
  }

  // Makes a model directory of the tensors and the config.
  std::string Source() const {
    const std::string source = directory_.path() + "/source";
    std::filesystem::create_directories(source);
    directory_.Write("source/model.safetensors", File());
    directory_.Write("source/config.json", config_.dump());
    return source;
  }

  // The numbers of a tensor that Transformers has recorded.
  static std::vector<float> Recorded(const std::string& name) {
    const std::string file = ReadWholeFile(SourcePath("tests/golden/quantized/written.safetensors"));
    const auto tensors = ParseSafetensors(file, "written.safetensors");
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    std::vector<float> values;
    for (const Tensor& tensor : *tensors) {
      if (tensor.name == name) AppendAsFloat(tensor.bytes, DataType::kFloat32, &values);
    }
    return values;
  }

  static void ExpectLogitsOfTransformers(const std::string& width, const std::vector<Logits>& actual, float tolerance) {
    const std::vector<float> expected = Recorded(width);
    const size_t vocabulary = actual.front().size();
    ASSERT_EQ(expected.size(), actual.size() * vocabulary);
    for (size_t i = 0; i < actual.size(); ++i) {
      const auto first = expected.begin() + static_cast<int64_t>(i * vocabulary);
      EXPECT_LT(RelativeError(actual[i], Logits(first, first + static_cast<int64_t>(vocabulary))), tolerance) << i;
    }
  }

  // What the worker reads of a matrix is what Transformers has read.
  void ExpectMatrixOfTransformers(Quantization width) const {
    const auto config = ReadModelConfig(Output());
    const auto checkpoint = Checkpoint::Open(Output());
    ASSERT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
    LoadProgress progress;
    progress.Begin("the model", /*num_files=*/1, /*total_bytes=*/1 << 20);
    TensorReader tensors(*checkpoint, &progress);
    const auto matrix =
        QuantizedReader(config->quantization, &tensors).Read("model.layers.0.mlp.down_proj.weight", 32, 64);
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    std::vector<float> weights;
    for (size_t i = 0; i < matrix->values.size(); ++i) {
      const size_t row = i / 64, group = width == Quantization::kInt8 ? row : row * 2 + i % 64 / 32;
      const int zero = width == Quantization::kInt8 ? 0 : matrix->zeros[group];
      weights.push_back((matrix->values[i] - zero) * matrix->scales[group]);
    }
    EXPECT_EQ(weights, Recorded(absl::StrCat(Name(width), ".down_proj")));
  }
};

TEST_F(QuantizeTest, Int8GivesTheBitsOfTheFlagOfTheWorkerAndTheLogitsOfTransformers) {
  const auto written = Write(Quantization::kInt8);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->num_matrices, 14);
  EXPECT_EQ(written->num_files, 1);
  const std::vector<Logits> logits = LogitsOfWritten();
  EXPECT_EQ(logits, RoundedAtLoad(Quantization::kInt8));
  ExpectMatrixOfTransformers(Quantization::kInt8);
  // Both round the inputs of products, but with other scales: the largest magnitude divided by 127, or by 127.5. Each
  // rounding moves the logits about as far from the logits of inputs in float32, and the two add like their squares.
  // The largest measured error is 0.087.
  ExactInputsBackend exact;
  const auto model = LoadModel(Output(), &exact);
  ASSERT_TRUE(model.ok()) << model.status();
  const float distance = LargestError(logits, LogitsOf(**model, &exact));
  ExpectLogitsOfTransformers("int8", logits, std::min(0.1f, std::sqrt(2.0f) * distance));
}

// Layers 0 and 2 have 8 experts each, and layer 1 has none. The routers stay as they are.
TEST_F(QuantizeTest, ExpertsGiveTheBitsOfTheFlagOfTheWorker) {
  const std::string source = GoldenModel("qwen3_moe");
  const auto written = Write(Quantization::kInt8, source);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->num_matrices, 3 * 4 + 3 + 2 * 8 * 3);
  const json config = json::parse(ReadWholeFile(Output() + "/config.json"));
  EXPECT_EQ(config["quantization_config"]["ignore"],
            json({"lm_head", "model.layers.0.mlp.gate", "model.layers.2.mlp.gate"}));
  const auto online = LoadModel(source, backend_.get(), /*progress=*/nullptr, {.layers = Quantization::kInt8});
  ASSERT_TRUE(online.ok()) << online.status();
  EXPECT_EQ(LogitsOfWritten(), LogitsOf(**online));
  EXPECT_EQ((*online)->config.quantization.plain_stacks.expert_down, 0);
}

TEST_F(QuantizeTest, ExpertsOfFp8AreMultipliedAsTheyAreStored) {
  ASSERT_TRUE(Write(Quantization::kFp8, GoldenModel("qwen3_moe")).ok());
  const auto config = ReadModelConfig(Output());
  ASSERT_TRUE(config.ok()) << config.status();
  const PlainStacks& plain = config->quantization.plain_stacks;
  EXPECT_EQ(plain.qkv + plain.gate_up + plain.expert_gate_up + plain.expert_down, 0);
  Fp8Backend kept(cpu::SupportedIsas().back(), /*num_threads=*/2, /*multiplies=*/true);
  const auto model = LoadModel(Output(), &kept);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.rounding.layers, Quantization::kFp8);
  EXPECT_LT(LargestError(LogitsOf(**model, &kept), LogitsOfWritten()), 1.0f);
}

TEST_F(QuantizeTest, AnExpertThatIsMissingIsNamed) {
  const std::string source = directory_.path() + "/source";
  std::filesystem::create_directories(source);
  std::string file = ReadWholeFile(GoldenModel("qwen3_moe") + "/model.safetensors");
  const std::string name = "model.layers.2.mlp.experts.5.up_proj.weight";
  file.replace(file.find(name), name.size(), "model.layers.2.mlp.experts.5.up_proj.wrong1");
  directory_.Write("source/model.safetensors", file);
  directory_.Write("source/config.json", ReadWholeFile(GoldenModel("qwen3_moe") + "/config.json"));
  EXPECT_THAT(std::string(Write(Quantization::kInt8, source).status().message()),
              HasSubstr(absl::StrCat("tensor ", name, " is missing; other layers have one")));
}

// The rows have 32 or 64 columns, so the file has groups of 32.
TEST_F(QuantizeTest, Int4HasTheLogitsOfTransformers) {
  const auto written = Write(Quantization::kInt4);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->group, 32);
  ExpectMatrixOfTransformers(Quantization::kInt4);
  ExpectLogitsOfTransformers("int4", LogitsOfWritten(Int4Inputs::kFloat32), 1e-3f);
}

TEST_F(QuantizeTest, Int4GivesTheBitsOfTheFlagOfTheWorkerWhenGroupsOf128AreStored) {
  MakeWider(4);
  const std::string source = Source();
  const auto written = Write(Quantization::kInt4, source);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->group, 128);
  const auto online = LoadModel(source, backend_.get(), /*progress=*/nullptr, {.layers = Quantization::kInt4});
  ASSERT_TRUE(online.ok()) << online.status();
  EXPECT_EQ(LogitsOfWritten(), LogitsOf(**online));
}

// The rows of Q and K are stored in another order than operations need, or the MLP has no gate or a stacked matrix.
TEST_F(QuantizeTest, Int8OfOtherFamiliesGivesTheBitsOfTheFlagOfTheWorker) {
  for (const char* name : {"ernie4_5", "glm4", "arcee", "cohere2"}) {
    SCOPED_TRACE(name);
    const std::string source = GoldenModel(name);
    const auto written = Write(Quantization::kInt8, source);
    ASSERT_TRUE(written.ok()) << written.status();
    ExpectLogitsOfRoundedAtLoad(source);
    std::filesystem::remove_all(Output());
  }
}

// The written folder has the text model alone, under its own names.
TEST_F(QuantizeTest, OfAWrapperTheTextModelIsWritten) {
  const std::string source = GoldenModel("mistral3_vision");
  const auto written = Write(Quantization::kInt8, source);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->num_matrices, 7);
  const auto config = nlohmann::json::parse(ReadWholeFile(Output() + "/config.json"));
  EXPECT_EQ(config["architectures"], nlohmann::json({"MistralForCausalLM"}));
  EXPECT_EQ(config["model_type"], "mistral");
  EXPECT_FALSE(config.contains("vision_config"));
  ExpectLogitsOfRoundedAtLoad(source);
}

// The matrices have 80 to 320 rows and columns, so blocks at both ends are short. One block has only zeros.
TEST_F(QuantizeTest, Fp8HasTheNearestNumbersOfEachBlock) {
  MakeWider(5);
  const std::string zeros = "model.layers.0.mlp.down_proj.weight";
  memset(tensors_.at(zeros).bytes.data(), 0, 128 * 320 * sizeof(float));
  const std::string source = Source();
  const auto written = Write(Quantization::kFp8, source);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->num_matrices, 14);
  const auto checkpoint = Checkpoint::Open(Output());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const std::string& name : matrices_) {
    std::vector<float> weights, scales;
    AppendAsFloat(tensors_.at(name).bytes, DataType::kFloat32, &weights);
    const Tensor& numbers = *checkpoint->Find(name);
    const Tensor& stored_scales = *checkpoint->Find(name + "_scale_inv");
    AppendAsFloat(stored_scales.bytes, DataType::kFloat32, &scales);
    ASSERT_EQ(numbers.shape, tensors_.at(name).shape);
    const int64_t cols = numbers.shape[1], across = (cols + 127) / 128;
    ASSERT_EQ(stored_scales.shape, (std::vector<int64_t>{(numbers.shape[0] + 127) / 128, across}));
    std::vector<float> largest(scales.size());
    for (int64_t i = 0; i < numbers.shape[0] * cols; ++i) {
      const int64_t block = i / cols / 128 * across + i % cols / 128;
      largest[block] = std::max(largest[block], std::fabs(weights[i]));
      // A number has three bits of a fraction, or is a multiple of 2^-9.
      const float value = Fp8ToFloat(static_cast<uint8_t>(numbers.bytes[i])) * scales[block];
      ASSERT_NEAR(value, weights[i], std::max(std::fabs(weights[i]) * 0x1.00001p-4f, scales[block] * 0x1.00001p-10f));
    }
    for (size_t block = 0; block < scales.size(); ++block) {
      EXPECT_EQ(scales[block], largest[block] / 448);
      EXPECT_EQ(scales[block] == 0, name == zeros && block < 3) << name << " " << block;
    }
  }
}

TEST_F(QuantizeTest, Fp8GivesTheLogitsOfTheSameNumbersInFloat32) {
  MakeWider(5);
  ASSERT_TRUE(Write(Quantization::kFp8, Source()).ok());
  Fp8Backend backend(cpu::Isa::kGeneric, /*num_threads=*/1, /*multiplies=*/true);
  const auto kept = LoadModel(Output(), &backend);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ((*kept)->weights.rounding.layers, Quantization::kFp8);
  const auto checkpoint = Checkpoint::Open(Output());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const std::string& name : matrices_) {
    const Tensor& numbers = *checkpoint->Find(name);
    const int64_t cols = numbers.shape[1], across = (cols + 127) / 128;
    std::vector<float> scales, weights;
    AppendAsFloat(checkpoint->Find(name + "_scale_inv")->bytes, DataType::kFloat32, &scales);
    for (int64_t i = 0; i < numbers.shape[0] * cols; ++i) {
      weights.push_back(Fp8ToFloat(static_cast<uint8_t>(numbers.bytes[i])) *
                        scales[i / cols / 128 * across + i % cols / 128]);
    }
    tensors_.at(name).bytes = BytesOf(weights);
  }
  const auto exact = LoadModel(Source(), &backend);
  ASSERT_TRUE(exact.ok()) << exact.status();
  EXPECT_LT(LargestError(LogitsOf(**kept, &backend), LogitsOf(**exact, &backend)), 1e-5f);
}

// Phi-3 stacks Q, K and V in one tensor, and gate and up in another one.
TEST_F(QuantizeTest, TensorsOfSeveralMatricesAreReadAgain) {
  for (const Quantization width : {Quantization::kInt8, Quantization::kInt4}) {
    std::filesystem::remove_all(Output());
    ASSERT_TRUE(Write(width, GoldenModel("phi3")).ok());
    const auto online = LoadModel(GoldenModel("phi3"), backend_.get(), /*progress=*/nullptr,
                                  {.layers = width, .int4_inputs = Int4Inputs::kFloat32});
    ASSERT_TRUE(online.ok()) << online.status();
    // With int4, the groups have other sizes, so sums have another order.
    EXPECT_LE(LargestError(LogitsOfWritten(Int4Inputs::kFloat32), LogitsOf(**online)),
              width == Quantization::kInt8 ? 0 : 1e-5f);
  }
}

TEST_F(QuantizeTest, OtherTensorsAndFilesAreCopied) {
  const std::string source = Source();
  directory_.Write("source/tokenizer.json", "{\"a\": 1}");
  directory_.Write("source/pytorch_model.bin", "old weights");
  ASSERT_TRUE(Write(Quantization::kInt8, source).ok());
  EXPECT_EQ(ReadWholeFile(Output() + "/tokenizer.json"), "{\"a\": 1}");
  EXPECT_FALSE(std::filesystem::exists(Output() + "/pytorch_model.bin"));
  json config = json::parse(ReadWholeFile(Output() + "/config.json"));
  EXPECT_EQ(config["quantization_config"]["quant_method"], "compressed-tensors");
  config.erase("quantization_config");
  EXPECT_EQ(config, config_);
  const auto checkpoint = Checkpoint::Open(Output());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(std::string(checkpoint->Find("lm_head.weight")->bytes), tensors_.at("lm_head.weight").bytes);
}

TEST_F(QuantizeTest, SeveralFilesHaveAnIndex) {
  const auto written = Write(Quantization::kInt8, GoldenModel("llama2"), /*max_file_bytes=*/10000);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_GT(written->num_files, 2);
  const std::string last = absl::StrCat("model-0000", written->num_files, "-of-0000", written->num_files);
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(Output(), "/", last, ".safetensors")));
  EXPECT_EQ(LogitsOfWritten(), RoundedAtLoad(Quantization::kInt8));
}

TEST_F(QuantizeTest, WrongModelsAndFoldersAreRefused) {
  const auto error = [&](Quantization width, const std::string& model) {
    std::filesystem::remove_all(Output());
    return std::string(Write(width, model).status().message());
  };
  EXPECT_THAT(error(Quantization::kInt8, directory_.path() + "/model.gguf"), HasSubstr("is a GGUF file"));
  EXPECT_THAT(error(Quantization::kInt8, directory_.path() + "/nothing"), HasSubstr("there is no folder"));
  ASSERT_TRUE(Write(Quantization::kInt8).ok());
  EXPECT_THAT(std::string(Write(Quantization::kInt8).status().message()), HasSubstr("written is not empty"));
  std::filesystem::rename(Output(), directory_.path() + "/quantized");
  EXPECT_THAT(error(Quantization::kInt4, directory_.path() + "/quantized"), HasSubstr("is quantized already (int8)"));

  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const StoredTensor good = tensors_.at(name);
  memset(tensors_.at(name).bytes.data() + 12, 0xff, 4);
  EXPECT_THAT(error(Quantization::kInt8, Source()),
              HasSubstr(absl::StrCat("tensor ", name, " is F32 [32, 64], and its element 3 is infinite")));
  tensors_.at(name) = {"I8", {32, 64}, std::string(2048, '\0')};
  EXPECT_THAT(error(Quantization::kInt8, Source()), HasSubstr("expected a matrix of F32, BF16 or F16"));
  tensors_.at(name) = {"F32", {16, 40}, good.bytes.substr(0, 2560)};
  EXPECT_THAT(error(Quantization::kInt4, Source()),
              HasSubstr(absl::StrCat("tensor ", name, " has 40 columns, with int4 they must be a multiple of 32")));
}

TEST_F(QuantizeTest, WhyAFileCannotBeWrittenIsSaid) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low = {.rlim_cur = 10'000, .rlim_max = limit.rlim_max};
  const auto previous = signal(SIGXFSZ, SIG_IGN);  // Otherwise the process ends at the limit.
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status status = Write(Quantization::kInt8).status();
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, previous);
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat("cannot write ", Output(), "/model.safetensors: File too large"));
  EXPECT_FALSE(std::filesystem::exists(Output()));
}

TEST_F(QuantizeTest, AnErrorLeavesWhatWasThereBefore) {
  memset(tensors_.at("model.layers.1.mlp.down_proj.weight").bytes.data() + 12, 0xff, 4);
  const std::string source = Source();
  for (const bool exists : {false, true}) {
    if (exists) {
      ASSERT_TRUE(std::filesystem::create_directory(Output()));
    }
    EXPECT_THAT(std::string(Write(Quantization::kInt8, source, /*max_file_bytes=*/10000).status().message()),
                HasSubstr("its element 3 is infinite"));
    EXPECT_EQ(std::filesystem::exists(Output()), exists);
    EXPECT_TRUE(!exists || std::filesystem::is_empty(Output()));
  }
}

TEST_F(QuantizeTest, NoFileIsCalledUnfinishedAtTheEnd) {
  ASSERT_TRUE(Write(Quantization::kInt8).ok());
  for (const auto& entry : std::filesystem::directory_iterator(Output())) {
    EXPECT_NE(entry.path().extension(), ".unfinished") << entry.path();
  }
}

TEST_F(QuantizeTest, AModelThatLacksTensorsIsRefusedWithTheNameOfOne) {
  const auto error = [&] { return std::string(Write(Quantization::kInt8, Source()).status().message()); };
  config_["num_hidden_layers"] = 4;
  EXPECT_THAT(error(), HasSubstr("/source: tensor model.layers.2.input_layernorm.weight is missing; config.json has 4 "
                                 "layers (num_hidden_layers), and the weights have 2"));
  EXPECT_FALSE(std::filesystem::exists(Output()));
  config_["num_hidden_layers"] = 2;
  const Tensors all = tensors_;
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "lm_head.weight", "model.embed_tokens.weight"}) {
    tensors_ = all;
    tensors_.erase(name);
    EXPECT_THAT(error(), HasSubstr(absl::StrCat("tensor ", name, " is missing")));
  }
  std::erase_if(tensors_, [](const auto& entry) { return absl::StrContains(entry.first, ".layers."); });
  tensors_["model.embed_tokens.weight"] = all.at("model.embed_tokens.weight");
  EXPECT_THAT(error(), HasSubstr("no tensor has a name that begins with model.layers.0"));
}

TEST_F(QuantizeTest, AConfigWithFewerLayersThanTheWeightsIsAWarningWithBothNumbers) {
  config_["num_hidden_layers"] = 1;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Write(Quantization::kInt8, Source()).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("config.json has 1 layer (num_hidden_layers), and the weights have 2; those from "
                        "model.layers.1 on are not used"));
}

TEST_F(QuantizeTest, TheFormatOfAQuantizedModelIsSaidInWords) {
  const auto error = [&](const json& quantization) {
    config_["quantization_config"] = quantization;
    return std::string(Write(Quantization::kInt8, Source()).status().message());
  };
  EXPECT_THAT(error({{"quant_method", "fp8"}}), HasSubstr("is quantized already (FP8), must have 16 or 32 bits"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}}),
              HasSubstr("(FP8 in blocks of 128 x 64)"));
  EXPECT_THAT(error({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}}),
              HasSubstr("(AWQ of 4 bits in groups of 64 columns)"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}}),
              HasSubstr("(GPTQ of 8 bits with a scale for each row)"));
}

// Returns the output of the program.
std::string OutputOf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BinaryPath("bin/quire-quantize"));
  Process process(arguments);
  process.Wait();
  return process.Output();
}

TEST_F(QuantizeTest, TheProgramSaysInItsFirstLinesWhatItDoesAndHowToCallIt) {
  EXPECT_THAT(
      OutputOf({"--help"}),
      StartsWith(
          "quire-quantize reads a model directory, rounds its weights to 8 or 4 bits as quire-worker --quantize\n"
          "does, and writes them with its other files to a new folder, as a checkpoint of "
          "compressed-tensors.\nWith --width=fp8 the checkpoint has FP8 in blocks instead.\n\n"
          "Usage: quire-quantize --model=DIR --output=NEW_DIR [--width=int8|int4|fp8]\n"));
}

TEST_F(QuantizeTest, TheProgramReadsAModelOfTheHub) {
  const std::string repository = directory_.path() + "/hub/models--a--b", commit(40, '7');
  for (const char* folder : {"/refs", "/snapshots"}) std::filesystem::create_directories(repository + folder);
  std::ofstream(repository + "/refs/main") << commit;
  std::filesystem::copy(GoldenModel("llama2"), repository + "/snapshots/" + commit,
                        std::filesystem::copy_options::recursive);
  setenv("HF_HUB_CACHE", (directory_.path() + "/hub").c_str(), /*replace=*/1);
  EXPECT_THAT(OutputOf({"--model=hf:a/b", "--output=" + Output()}), HasSubstr("14 matrices in int8"));
  unsetenv("HF_HUB_CACHE");
}

TEST_F(QuantizeTest, TheProgramPrintsSizesInAFittingUnit) {
  EXPECT_EQ(OutputOf({"--model=" + GoldenModel("llama2"), "--output=" + Output()}),
            Output() + ": 14 matrices in int8, 46.9 KiB instead of 104.6 KiB\n");
  std::filesystem::remove_all(Output());
  EXPECT_THAT(OutputOf({"--model=" + GoldenModel("llama2"), "--output=" + Output(), "--width=fp8"}),
              StartsWith(Output() + ": 14 matrices in fp8, "));
  EXPECT_THAT(OutputOf({"--model=" + GoldenModel("llama2"), "--output=" + Output(), "--width=fp16"}),
              HasSubstr("--width is 'fp16', it must be one of int8, int4, fp8"));
}

}  // namespace
}  // namespace quire::quantize
