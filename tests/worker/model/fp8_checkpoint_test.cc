// SPDX-License-Identifier: Apache-2.0

// Checkpoints with matrices of FP8, made here from the small Llama model.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/quantized_checkpoint.h"
#include "tests/worker/model/test_backends.h"
#include "worker/model/checkpoint.h"
#include "worker/model/fp8.h"
#include "worker/model/load_progress.h"
#include "worker/model/model.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kProjection[] = "model.layers.1.self_attn.q_proj.weight";

// The number of FP8 that is nearest to the value.
uint8_t Nearest(float value) {
  int best = 0;
  for (int i = 1; i < 256; ++i) {
    if ((i & 127) != 127 && std::fabs(Fp8ToFloat(i) - value) < std::fabs(Fp8ToFloat(best) - value)) best = i;
  }
  return best;
}

// The same for the value of a bfloat16 with these bits.
uint8_t NearestTo(BFloat16 value) {
  static const auto* const table = [] {
    auto* const made = new std::vector<uint8_t>(1 << 16);
    for (int i = 0; i < 1 << 16; ++i) (*made)[i] = Nearest(ToFloat(BFloat16{static_cast<uint16_t>(i)}));
    return made;
  }();
  return (*table)[value.bits];
}

// The small model has matrices of 32 and more rows and columns. Blocks of 24 x 20 have short blocks at both ends.
class Fp8CheckpointTest : public CheckpointTest {
 protected:
  explicit Fp8CheckpointTest(const std::string& model = "llama2") : CheckpointTest(model) {}

  // Stores every matrix of the layers as FP8 with one scale per block. `plain_` becomes what they stand for: the same
  // numbers in bfloat16; and `exact_` the same in float32. 0 rows are all rows, and 0 columns are all columns.
  void Store(int block_rows, int block_cols, const std::string& suffix, std::vector<int64_t> (*shape)(int, int)) {
    for (const std::string& name : matrices_) {
      const MatrixView view = View(name);
      const int height = block_rows > 0 ? block_rows : view.rows, width = block_cols > 0 ? block_cols : view.cols;
      const int across = (view.cols + width - 1) / width;
      std::vector<float> values, scales(static_cast<size_t>(across) * ((view.rows + height - 1) / height));
      AppendAsFloat(tensors_.at(name).bytes, DataType::kFloat32, &values);
      const auto scale_of = [&](size_t i) -> float& {
        const size_t row = i / view.cols, col = i % view.cols;
        return scales[row / height * across + col / width];
      };
      for (size_t i = 0; i < values.size(); ++i) scale_of(i) = std::max(scale_of(i), std::fabs(values[i]) / 448);
      std::vector<uint8_t> numbers;
      std::vector<BFloat16> plain;
      std::vector<float> exact;
      for (size_t i = 0; i < values.size(); ++i) {
        numbers.push_back(NearestTo(ToBFloat16(values[i] / scale_of(i))));
        exact.push_back(Fp8ToFloat(numbers.back()) * scale_of(i));
        plain.push_back(ToBFloat16(exact.back()));
      }
      exact_[name] = {"F32", tensors_.at(name).shape, BytesOf(exact)};
      plain_[name] = {"BF16", tensors_.at(name).shape, BytesOf(plain)};
      tensors_[name] = {"F8_E4M3", tensors_.at(name).shape, BytesOf(numbers)};
      tensors_[name + suffix] = {"F32", shape(view.rows, view.cols), BytesOf(scales)};
    }
  }

  // The model with other matrices and without scales.
  void Replace(const Tensors& matrices) {
    for (const auto& [name, tensor] : matrices) tensors_[name] = tensor;
    std::erase_if(tensors_, [](const auto& entry) { return absl::StrContains(entry.first, "_scale"); });
    config_.erase("quantization_config");
  }

  // Matrices become bfloat16, so that the logits equal the plain model's.
  void ExpectThePlainModel(Quantization quantize = Quantization::kNone) {
    const auto stored = Load(quantize);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ((*stored)->weights.rounding.layers, quantize);
    const std::vector<Logits> logits = LogitsOf(**stored);
    Replace(plain_);
    const auto plain = Load(quantize);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(logits, LogitsOf(**plain));
  }

  // Matrices stay FP8. With every instruction set the logits are near the logits of the exact weights in float32, and
  // the way in which tokens are computed changes no bit. Some instruction sets round the inputs of products to
  // bfloat16. There the logits may be twice as far away as with weights in bfloat16, whose products round the same
  // inputs.
  void ExpectFp8Products() {
    const Tensors stored = tensors_;
    const json config = config_;
    Replace(exact_);
    const std::vector<Logits> exact = LogitsOn(cpu::Isa::kGeneric);
    for (const cpu::Isa isa : cpu::SupportedIsas()) {
      SCOPED_TRACE(cpu::Name(isa));
      tensors_ = stored;
      config_ = config;
      Fp8Backend backend(isa, /*num_threads=*/1, /*multiplies=*/true), threads(isa, /*num_threads=*/3, true);
      const auto kept = LoadOn(&backend), on_threads = LoadOn(&threads);
      ASSERT_TRUE(kept.ok()) << kept.status();
      ASSERT_TRUE(on_threads.ok()) << on_threads.status();
      EXPECT_EQ((*kept)->weights.rounding.layers, Quantization::kFp8);
      const std::vector<Logits> logits = PagedRunner(kept->get(), &backend, {}).Prefill(0, kTokens, 4);
      for (const int chunk : {1, 3, 20}) {
        EXPECT_EQ(PagedRunner(kept->get(), &backend, {}).Prefill(0, kTokens, chunk), logits);
      }
      EXPECT_EQ(PagedRunner(on_threads->get(), &threads, {}).Prefill(0, kTokens, 20), logits);
      if (backend.InputType(*(*kept)->weights.layers[0].qkv) == DataType::kFloat32) {
        Replace(exact_);
        EXPECT_LT(LargestError(logits, LogitsOn(isa)), 1e-5f);
        continue;
      }
      Replace(plain_);
      EXPECT_LT(LargestError(logits, exact), 2 * LargestError(LogitsOn(isa), exact));
    }
  }

  std::vector<Logits> LogitsOn(cpu::Isa isa) const {
    Fp8Backend backend(isa, /*num_threads=*/1, /*multiplies=*/true);
    const auto model = LoadOn(&backend);
    EXPECT_TRUE(model.ok()) << model.status();
    return PagedRunner(model->get(), &backend, {}).Prefill(0, kTokens, 4);
  }

  absl::StatusOr<std::unique_ptr<Model>> LoadOn(Backend* backend) const {
    directory_.Write("model.safetensors", File());
    directory_.Write("config.json", config_.dump());
    return LoadModel(directory_.path(), backend);
  }

  const Tokens kTokens = {1, 5, 17, 3, 90, 33, 2, 4, 4, 61, 7, 8, 9, 70, 20, 21, 3, 5, 6, 2};

  static std::vector<int64_t> PerTensor(int, int) { return {}; }
  static std::vector<int64_t> PerRow(int rows, int) { return {rows, 1}; }
  static std::vector<int64_t> PerBlock(int rows, int cols) { return {(rows + 23) / 24, (cols + 19) / 20}; }

  Tensors plain_, exact_;
};

json CompressedTensors(const std::string& format, json weights) {
  weights.update({{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"dynamic", false}});
  const json inputs = {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"ignore", {"lm_head"}},
          {"config_groups", {{"group_0", {{"weights", weights}, {"input_activations", inputs}}}}}};
}

TEST_F(Fp8CheckpointTest, BlocksUnderTheNameOfDeepSeekAndQwen) {
  Store(24, 20, "_scale_inv", PerBlock);
  config_["quantization_config"] = {{"quant_method", "fp8"},
                                    {"fmt", "e4m3"},
                                    {"activation_scheme", "dynamic"},
                                    {"weight_block_size", {24, 20}},
                                    {"modules_to_not_convert", {"lm_head"}}};
  ExpectThePlainModel();
}

TEST_F(Fp8CheckpointTest, BlocksUnderTheNameOfCompressedTensors) {
  Store(24, 20, "_scale", PerBlock);
  config_["quantization_config"] =
      CompressedTensors("float-quantized", {{"strategy", "block"}, {"block_structure", {24, 20}}});
  ExpectThePlainModel();
}

TEST_F(Fp8CheckpointTest, AScalePerRow) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("float-quantized", {{"strategy", "channel"}});
  ExpectFp8Products();
}

// Q, K, V and the two matrices of the MLP are multiplied together, and have blocks of their own.
TEST_F(Fp8CheckpointTest, BlocksOf32ColumnsStayFp8) {
  Store(24, 32, "_scale_inv", [](int rows, int cols) -> std::vector<int64_t> {
    return {(rows + 23) / 24, (cols + 31) / 32};
  });
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {24, 32}}};
  ExpectFp8Products();
}

// One tensor has Q, K and V, and another one has gate and up, whose halves are packed as two matrices.
class FusedFp8CheckpointTest : public Fp8CheckpointTest {
 protected:
  FusedFp8CheckpointTest() : Fp8CheckpointTest("phi3") {}
};

TEST_F(FusedFp8CheckpointTest, AScalePerRow) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("float-quantized", {{"strategy", "channel"}});
  ExpectFp8Products();
}

TEST_F(FusedFp8CheckpointTest, AScalePerTensor) {
  Store(0, 0, "_scale", PerTensor);
  config_["quantization_config"] = {{"quant_method", "fp8"}};
  ExpectFp8Products();
}

// The halves of 64 rows end inside of a block of 24 rows.
TEST_F(FusedFp8CheckpointTest, BlocksOf32ColumnsStayFp8) {
  Store(24, 32, "_scale_inv", [](int rows, int cols) -> std::vector<int64_t> {
    return {(rows + 23) / 24, (cols + 31) / 32};
  });
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {24, 32}}};
  ExpectFp8Products();
}

// Processors with AMX do so, and so do the generic kernels.
TEST_F(Fp8CheckpointTest, ABackendWithoutProductsByFp8GetsBFloat16) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("float-quantized", {{"strategy", "channel"}});
  Fp8Backend backend(cpu::SupportedIsas().back(), /*num_threads=*/1, /*multiplies=*/false);
  const auto stored = LoadOn(&backend);
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ((*stored)->weights.rounding.layers, Quantization::kNone);
  const std::vector<Logits> logits = PagedRunner(stored->get(), &backend, {}).Prefill(0, kTokens, 4);
  Replace(plain_);
  const auto plain = LoadOn(&backend);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(logits, PagedRunner(plain->get(), &backend, {}).Prefill(0, kTokens, 4));
}

// Q, K and V are multiplied together. When only some of them are FP8, all three become bfloat16.
TEST_F(Fp8CheckpointTest, AStackThatIsFp8InPartBecomesBFloat16) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("float-quantized", {{"strategy", "channel"}});
  Fp8Backend backend(cpu::SupportedIsas().back(), /*num_threads=*/1, /*multiplies=*/true);
  std::vector<std::vector<Logits>> logits;
  for (const char* part : {"k", "q", "v"}) {
    const std::string name = absl::StrCat("model.layers.1.self_attn.", part, "_proj.weight");
    tensors_[name] = plain_.at(name);
    tensors_.erase(name + "_scale");
    const auto model = LoadOn(&backend);
    ASSERT_TRUE(model.ok()) << model.status();
    const PlainStacks& plain = (*model)->config.quantization.plain_stacks;
    EXPECT_EQ(plain.qkv, 1);
    EXPECT_EQ(plain.attention_output + plain.gate_up + plain.down, 0);
    logits.push_back(PagedRunner(model->get(), &backend, {}).Prefill(0, kTokens, 4));
  }
  EXPECT_EQ(logits[0], logits[2]) << "only K is bfloat16, or all three are";
  EXPECT_EQ(logits[1], logits[2]);
}

TEST_F(Fp8CheckpointTest, NaiveQuantizedIsFp8WhenItsWeightsAre) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("naive-quantized", {{"strategy", "channel"}});
  Fp8Backend backend(cpu::SupportedIsas().back(), /*num_threads=*/1, /*multiplies=*/true);
  const auto model = LoadOn(&backend);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.rounding.layers, Quantization::kFp8);
}

TEST_F(Fp8CheckpointTest, TheLogSaysWhichNumbersShareAScale) {
  const auto log = [&] {
    SetLogLevel(LogLevel::kDebug);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(Load().ok());
    SetLogLevel(LogLevel::kInfo);
    return testing::internal::GetCapturedStderr();
  };
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("float-quantized", {{"strategy", "channel"}});
  EXPECT_THAT(log(), HasSubstr(" quantization FP8, weights "));
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {1, 128}}};
  EXPECT_THAT(log(), HasSubstr(" quantization FP8 in blocks of 1 x 128, weights "));
}

// Q, K and V have a scale each, and become one matrix. Scales of inputs, K and V are not used.
TEST_F(Fp8CheckpointTest, AScalePerTensor) {
  for (const json& config :
       {json{{"quant_method", "fp8"}, {"activation_scheme", "static"}},
        json{{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}}}) {
    Store(0, 0, "_scale", PerTensor);
    tensors_["model.layers.1.self_attn.q_proj.input_scale"] = {"F32", {}, BytesOf(std::vector<float>{0.5})};
    tensors_["model.layers.1.mlp.up_proj.activation_scale"] = {"BF16", {}, std::string(2, '?')};
    tensors_["model.layers.1.self_attn.k_proj.k_scale"] = {"F32", {}, BytesOf(std::vector<float>{0.5})};
    config_["quantization_config"] = config;
    testing::internal::CaptureStderr();
    ExpectFp8Products();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("unknown tensor")));
    Replace(exact_);  // The next round begins with the numbers of this one.
  }
}

TEST_F(Fp8CheckpointTest, RoundingAtLoadBeginsWithTheNumbersOfTheFileTimesTheirScales) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("float-quantized", {{"strategy", "channel"}});
  ExpectThePlainModel(Quantization::kInt8);
}

// Several matrices can be one tensor, as in Phi-3. A view of the first one stays valid when the second one is taken.
TEST_F(Fp8CheckpointTest, ATensorThatIsTakenTwiceIsConvertedOnce) {
  Store(1, 0, "_scale", PerRow);
  directory_.Write("model.safetensors", File());
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  LoadProgress progress;
  progress.Begin("the model", /*num_files=*/1, /*total_bytes=*/1 << 20);
  TensorReader tensors(*checkpoint, &progress, Fp8Block());
  const auto first = tensors.Take(kProjection, {32, 32});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string_view bytes = (*first)->bytes;
  const auto second = tensors.Take(kProjection, {32, 32});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->bytes.data(), bytes.data());
}

TEST_F(Fp8CheckpointTest, WithoutTheFieldInTheConfigItIsNamed) {
  Store(1, 0, "_scale", PerRow);
  config_.erase("quantization_config");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("is F8_E4M3 [32, 32], expected [32, 32] of F32, BF16 or F16; to read F8_E4M3, "
                                       "config.json needs a quantization_config that names FP8"));
}

TEST_F(Fp8CheckpointTest, WrongTensorsAreRefusedByName) {
  Store(24, 20, "_scale_inv", PerBlock);
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {24, 20}}};
  const Tensors good = tensors_;
  const std::string scale = std::string(kProjection) + "_scale_inv";

  tensors_.at(kProjection).bytes[5] = 0x7f;
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr(absl::StrCat("tensor ", kProjection, " is F8_E4M3 [32, 32], and its element 5 is")));
  tensors_ = good;
  tensors_.at(kProjection).dtype = "F8_E5M2";
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("F8_E5M2 [32, 32], expected [32, 32] of F32, BF16 or F16 or F8_E4M3"));
  tensors_ = good;
  tensors_.erase(scale);
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr(absl::StrCat("tensor ", kProjection, "_scale_inv is missing, expected [2, 2] of F32")));
  tensors_ = good;
  tensors_.at(scale).shape = {4, 1};
  EXPECT_THAT(ErrorOfLoad(), HasSubstr(absl::StrCat("tensor ", scale, " is F32 [4, 1], expected [2, 2] of F32")));
  tensors_ = good;
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(tensors_.at(scale).bytes.data() + sizeof(float), &infinite, sizeof(float));
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr(absl::StrCat("tensor ", scale, " is F32 [2, 2], and its element 1 is infinite")));
  tensors_ = good;
  config_["quantization_config"].erase("weight_block_size");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("expected [32, 1], [32] or [1] of F32, BF16 or F16"));
  config_.erase("quantization_config");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("F8_E4M3 [32, 32], expected [32, 32] of F32, BF16 or F16"));
}

// The same where the matrices stay FP8.
TEST_F(Fp8CheckpointTest, WrongTensorsThatStayFp8AreRefusedByName) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = {{"quant_method", "fp8"}};
  const Tensors good = tensors_;
  const std::string scale = std::string(kProjection) + "_scale";
  const auto error_of_load = [&] {
    Fp8Backend backend(cpu::Isa::kGeneric, /*num_threads=*/1, /*multiplies=*/true);
    return std::string(LoadOn(&backend).status().message());
  };
  for (const char bits : {0x7f, -1}) {
    tensors_.at(kProjection).bytes[5] = bits;
    EXPECT_THAT(error_of_load(), HasSubstr(absl::StrCat("tensor ", kProjection,
                                                        " is F8_E4M3 [32, 32], and its element 5 is infinite or not")));
  }
  tensors_ = good;
  tensors_.at(kProjection).shape = {16, 64};
  EXPECT_THAT(error_of_load(), HasSubstr("F8_E4M3 [16, 64], expected [32, 32] of F8_E4M3"));
  tensors_ = good;
  tensors_.erase(scale);
  EXPECT_THAT(error_of_load(), HasSubstr(absl::StrCat("tensor ", scale, " is missing, expected [32, 1], [32] or [1]")));
  tensors_ = good;
  tensors_.at(scale).shape = {4, 8};
  EXPECT_THAT(error_of_load(), HasSubstr(absl::StrCat("tensor ", scale, " is F32 [4, 8], expected [32, 1]")));
  tensors_ = good;
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(tensors_.at(scale).bytes.data() + sizeof(float), &infinite, sizeof(float));
  EXPECT_THAT(error_of_load(),
              HasSubstr(absl::StrCat("tensor ", scale, " is F32 [32, 1], and its element 1 is infinite")));
}

TEST_F(Fp8CheckpointTest, WrongFieldsAreRefusedByName) {
  Store(1, 0, "_scale", PerRow);
  const auto error_of = [&](const json& config) {
    config_["quantization_config"] = config;
    return ErrorOfLoad();
  };
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("fmt is \"e5m2\", must be \"e4m3\""));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"weight_block_size", {128}}}),
              HasSubstr("weight_block_size is [128], must be two numbers in 1 .. "));
  for (const json& bad : {json(128), json{0, 128}, json{128, "x"}}) {
    config_["quantization_config"]["weight_block_size"] = bad;
    EXPECT_THAT(ErrorOfLoad(), HasSubstr(", must be two numbers in 1 .. "));
  }
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}}), HasSubstr("weight_block_size"));
  EXPECT_THAT(error_of({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}),
              HasSubstr("quant_algo is \"NVFP4\", must be \"FP8\""));
  EXPECT_THAT(error_of(CompressedTensors("float-quantized", {{"strategy", "group"}})),
              HasSubstr("weights.strategy is \"group\", must be \"channel\", \"tensor\" or \"block\""));
  EXPECT_THAT(error_of(CompressedTensors("float-quantized", {{"strategy", "block"}})), HasSubstr("block_structure"));
}

TEST_F(Fp8CheckpointTest, AChangedByteIsLoadedOrRefusedButNeverCrashes) {
  SetLogLevel(LogLevel::kError);
  Store(24, 20, "_scale_inv", PerBlock);
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {24, 20}}};
  const std::string file = File();
  size_t num_bytes = 0;
  for (const auto& [name, tensor] : tensors_) num_bytes += tensor.bytes.size();
  directory_.Write("config.json", config_.dump());
  std::mt19937 random(1);
  int num_refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bad_file = file;
    bad_file[random() % (file.size() - num_bytes)] ^= static_cast<char>(1 + random() % 255);
    directory_.Write("model.safetensors", bad_file);
    const auto model = LoadModel(directory_.path(), backend_.get());
    if (model.ok()) continue;
    ++num_refused;
    EXPECT_THAT(std::string(model.status().message()), testing::Not(HasSubstr("\n")));
  }
  SetLogLevel(LogLevel::kInfo);
  EXPECT_GT(num_refused, 500);
}

}  // namespace
}  // namespace quire
