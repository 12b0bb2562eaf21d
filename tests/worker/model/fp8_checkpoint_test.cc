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
#include "kernels/half_float.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/quantized_checkpoint.h"
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

TEST(Fp8Test, NumbersAreThoseOfTheDefinition) {
  EXPECT_EQ(Fp8ToFloat(0x00), 0);
  EXPECT_EQ(Fp8ToFloat(0x01), std::ldexp(1.0f, -9)) << "the least positive number";
  EXPECT_EQ(Fp8ToFloat(0x07), std::ldexp(7.0f, -9)) << "the largest subnormal number";
  EXPECT_EQ(Fp8ToFloat(0x08), std::ldexp(1.0f, -6)) << "the least normal number";
  EXPECT_EQ(Fp8ToFloat(0x38), 1);
  EXPECT_EQ(Fp8ToFloat(0x3c), 1.5);
  EXPECT_EQ(Fp8ToFloat(0x7e), 448) << "the largest number";
  EXPECT_TRUE(std::isnan(Fp8ToFloat(0x7f)));
  EXPECT_TRUE(std::isnan(Fp8ToFloat(0xff)));
  for (int i = 1; i < 127; ++i) {
    EXPECT_EQ(Fp8ToFloat(i | 128), -Fp8ToFloat(i)) << i;
    EXPECT_LT(Fp8ToFloat(i - 1), Fp8ToFloat(i)) << i;
  }
}

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
  // Stores every matrix of the layers as FP8 with one scale per block. `plain_` becomes what they stand for: the same
  // numbers in bfloat16. 0 rows are all rows, and 0 columns are all columns.
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
      for (size_t i = 0; i < values.size(); ++i) {
        numbers.push_back(NearestTo(ToBFloat16(values[i] / scale_of(i))));
        plain.push_back(ToBFloat16(Fp8ToFloat(numbers.back()) * scale_of(i)));
      }
      plain_[name] = {"BF16", tensors_.at(name).shape, BytesOf(plain)};
      tensors_[name] = {"F8_E4M3", tensors_.at(name).shape, BytesOf(numbers)};
      tensors_[name + suffix] = {"F32", shape(view.rows, view.cols), BytesOf(scales)};
    }
  }

  void ExpectThePlainModel(Quantization quantize = Quantization::kNone) {
    const auto stored = Load(quantize);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ((*stored)->weights.rounding.layers, quantize);
    const std::vector<Logits> logits = LogitsOf(**stored);
    for (const auto& [name, tensor] : plain_) tensors_[name] = tensor;
    std::erase_if(tensors_, [](const auto& entry) { return absl::StrContains(entry.first, "_scale"); });
    config_.erase("quantization_config");
    const auto plain = Load(quantize);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(logits, LogitsOf(**plain));
  }

  static std::vector<int64_t> PerTensor(int, int) { return {}; }
  static std::vector<int64_t> PerRow(int rows, int) { return {rows, 1}; }
  static std::vector<int64_t> PerBlock(int rows, int cols) { return {(rows + 23) / 24, (cols + 19) / 20}; }

  Tensors plain_;
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
  ExpectThePlainModel();
}

TEST_F(Fp8CheckpointTest, NaiveQuantizedIsFp8WhenItsWeightsAre) {
  Store(1, 0, "_scale", PerRow);
  config_["quantization_config"] = CompressedTensors("naive-quantized", {{"strategy", "channel"}});
  ExpectThePlainModel();
}

// Q, K and V have a scale each, and become one matrix. Scales of inputs, K and V are not used.
TEST_F(Fp8CheckpointTest, AScalePerTensor) {
  for (const json& config :
       {json{{"quant_method", "fp8"}, {"activation_scheme", "static"}},
        json{{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}}}) {
    Store(0, 0, "_scale", PerTensor);
    tensors_["model.layers.1.self_attn.q_proj.input_scale"] = {"F32", {}, BytesOf(std::vector<float>{0.5})};
    tensors_["model.layers.1.self_attn.k_proj.k_scale"] = {"F32", {}, BytesOf(std::vector<float>{0.5})};
    config_["quantization_config"] = config;
    testing::internal::CaptureStderr();
    ExpectThePlainModel();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("unknown tensors")));
    // The next round begins with the numbers of this one in float32.
    for (const std::string& name : matrices_) {
      std::vector<float> values;
      AppendAsFloat(tensors_.at(name).bytes, DataType::kBFloat16, &values);
      tensors_[name] = {"F32", tensors_.at(name).shape, BytesOf(values)};
    }
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

TEST_F(Fp8CheckpointTest, WrongTensorsAreRefusedByName) {
  Store(24, 20, "_scale_inv", PerBlock);
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {24, 20}}};
  const Tensors good = tensors_;
  const std::string scale = std::string(kProjection) + "_scale_inv";

  tensors_.at(kProjection).bytes[5] = 0x7f;
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr(absl::StrCat("tensor ", kProjection, " is BF16 [32, 32], and its element 5 is")));
  tensors_ = good;
  tensors_.at(kProjection).dtype = "F8_E5M2";
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("F8_E5M2 [32, 32], expected [32, 32] of F32, BF16 or F16 or F8_E4M3"));
  tensors_ = good;
  tensors_.erase(scale);
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr(absl::StrCat("tensor ", kProjection, "_scale is missing, expected [2, 2] of F32")));
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

TEST_F(Fp8CheckpointTest, WrongFieldsAreRefusedByName) {
  Store(1, 0, "_scale", PerRow);
  const auto error_of = [&](const json& config) {
    config_["quantization_config"] = config;
    return ErrorOfLoad();
  };
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("fmt is \"e5m2\", must be \"e4m3\""));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"weight_block_size", {128}}}),
              HasSubstr("weight_block_size is [128], must be two numbers"));
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
