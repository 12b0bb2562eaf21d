// SPDX-License-Identifier: Apache-2.0

// Checkpoints with weights of 4 bits in the layouts of compressed-tensors, GPTQ and AWQ, made here from the small Llama
// model.

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/local_group.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/quantized_checkpoint.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kQuery[] = "model.layers.1.self_attn.q_proj.";
constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};

// Packs number(index of a word, place in the word) into words.
template <typename Number>
std::vector<uint32_t> Words(int num_words, Number&& number) {
  std::vector<uint32_t> words(num_words);
  for (int word = 0; word < num_words; ++word) {
    for (int i = 0; i < 8; ++i) words[word] |= static_cast<uint32_t>(number(word, i)) << 4 * i;
  }
  return words;
}

// The rows of the model have at most 64 columns, so with groups of 128 each row has one group.
class Int4CheckpointTest : public CheckpointTest {
 protected:
  using Store = std::function<void(const std::string& base, const QuantizedMatrix& matrix)>;

  // Takes away all dimensions of the MLP but the first `size`.
  void CutMlp(int size) {
    config_["intermediate_size"] = size;
    for (const std::string& name : matrices_) {
      StoredTensor& tensor = tensors_.at(name);
      const bool is_down = absl::StrContains(name, "down_proj");
      if (!is_down && !absl::StrContains(name, "gate_proj") && !absl::StrContains(name, "up_proj")) continue;
      const size_t row_bytes = tensor.bytes.size() / tensor.shape[0];
      if (is_down) {
        const size_t cut_bytes = row_bytes / tensor.shape[1] * size;
        std::string cut;
        for (int64_t row = 0; row < tensor.shape[0]; ++row) cut += tensor.bytes.substr(row * row_bytes, cut_bytes);
        tensor.bytes = cut;
      } else {
        tensor.bytes.resize(size * row_bytes);
      }
      tensor.shape[is_down ? 1 : 0] = size;
    }
  }

  // Replaces all matrices of the layers by what `store` makes of them.
  void StoreAll(const Store& store) {
    for (const std::string& name : matrices_) {
      const QuantizedMatrix matrix = QuantizeToInt4(View(name));
      tensors_.erase(name);
      store(std::string(absl::StripSuffix(name, "weight")), matrix);
    }
  }

  void StorePackQuantized() {
    StoreAll([&](const std::string& base, const QuantizedMatrix& m) {
      const auto packed = Words(m.rows * m.cols / 8, [&](int word, int i) { return m.values[8 * word + i]; });
      const auto zeros = Words(m.rows / 8, [&](int word, int i) { return m.zeros[8 * word + i]; });
      tensors_[base + "weight_packed"] = {"I32", {m.rows, m.cols / 8}, BytesOf(packed)};
      tensors_[base + "weight_zero_point"] = {"I32", {m.rows / 8, 1}, BytesOf(zeros)};
      tensors_[base + "weight_scale"] = {"F32", {m.rows, 1}, BytesOf(m.scales)};
      tensors_[base + "weight_shape"] = {"I64", {2}, BytesOf(std::vector<int64_t>{m.rows, m.cols})};
    });
    config_["quantization_config"] = json::parse(R"({
      "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
      "ignore": ["lm_head"], "config_groups": {"group_0": {
        "targets": ["Linear"], "input_activations": null, "output_activations": null,
        "weights": {"num_bits": 4, "type": "int", "symmetric": false, "strategy": "group", "group_size": 128,
                    "actorder": null, "dynamic": false}}}})");
  }

  // `less` is what is subtracted from each zero point.
  void StoreGptq(int less) {
    StoreAll([&](const std::string& base, const QuantizedMatrix& m) {
      const auto packed = Words(m.cols / 8 * m.rows, [&](int word, int i) {
        return m.values[word % m.rows * m.cols + word / m.rows * 8 + i];
      });
      auto zeros = Words(m.rows / 8, [&](int word, int i) { return m.zeros[8 * word + i]; });
      for (uint32_t& word : zeros) word -= less * 0x11111111u;
      tensors_[base + "qweight"] = {"I32", {m.cols / 8, m.rows}, BytesOf(packed)};
      tensors_[base + "qzeros"] = {"I32", {1, m.rows / 8}, BytesOf(zeros)};
      tensors_[base + "scales"] = {"F32", {1, m.rows}, BytesOf(m.scales)};
      tensors_[base + "g_idx"] = {"I32", {m.cols}, BytesOf(std::vector<int32_t>(m.cols, 0))};
    });
    config_["quantization_config"] = json::parse(R"({
      "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": false, "lm_head": false,
      "meta": {"quantizer": ["gptqmodel:7.7.0"]}, "pack_dtype": "int32"})");
    config_["quantization_config"]["checkpoint_format"] = less == 0 ? "gptq_v2" : "gptq";
  }

  void StoreAwq() {
    StoreAll([&](const std::string& base, const QuantizedMatrix& m) {
      const int words = m.rows / 8;
      const auto packed = Words(m.cols * words, [&](int word, int i) {
        return m.values[(word % words * 8 + kAwqOrder[i]) * m.cols + word / words];
      });
      const auto zeros = Words(words, [&](int word, int i) { return m.zeros[8 * word + kAwqOrder[i]]; });
      tensors_[base + "qweight"] = {"I32", {m.cols, words}, BytesOf(packed)};
      tensors_[base + "qzeros"] = {"I32", {1, words}, BytesOf(zeros)};
      tensors_[base + "scales"] = {"F32", {1, m.rows}, BytesOf(m.scales)};
    });
    config_["quantization_config"] = json::parse(R"({"quant_method": "awq", "bits": 4, "group_size": 128,
      "zero_point": true, "version": "GEMM", "modules_to_not_convert": null})");
  }

  void ExpectTheBitsOfNumbersRoundedAtLoad() const {
    const auto model = Load();
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->weights.rounding.layers, Quantization::kInt4);
    EXPECT_EQ(LogitsOf(**model), RoundedAtLoad(Quantization::kInt4));
  }

  // Sets one value of config.json, and expects an error soon.
  void ExpectRefused(const std::string& pointer, const json& value, const std::string& message) {
    const json good = config_;
    config_["quantization_config"][json::json_pointer(pointer)] = value;
    EXPECT_THAT(ErrorOfLoad(), HasSubstr(message)) << pointer;
    config_ = good;
  }
  void ExpectRefused(const std::function<void(Tensors*)>& change, const std::string& message) {
    const Tensors good = tensors_;
    change(&tensors_);
    EXPECT_THAT(ErrorOfLoad(), HasSubstr(message));
    tensors_ = good;
  }
};

TEST_F(Int4CheckpointTest, PackQuantizedGivesTheBitsOfTheSameNumbersRoundedAtLoad) {
  StorePackQuantized();
  ExpectTheBitsOfNumbersRoundedAtLoad();
}

TEST_F(Int4CheckpointTest, BothVersionsOfGptqGiveTheBitsOfTheSameNumbersRoundedAtLoad) {
  for (const int less : {0, 1}) {
    const Tensors plain = tensors_;
    StoreGptq(less);
    ExpectTheBitsOfNumbersRoundedAtLoad();
    tensors_ = plain;
  }
}

TEST_F(Int4CheckpointTest, AwqGivesTheBitsOfTheSameNumbersRoundedAtLoad) {
  StoreAwq();
  ExpectTheBitsOfNumbersRoundedAtLoad();
}

// Groups as long as a row, and groups of any multiple of 128 columns, are divided into groups of 128 with the same
// scale.
TEST_F(Int4CheckpointTest, LongGroupsAreTheSameAsTheirParts) {
  StoreGptq(0);
  for (const int group : {-1, 128, 4096}) {
    config_["quantization_config"]["group_size"] = group;
    ExpectTheBitsOfNumbersRoundedAtLoad();
  }
}

// A group as long as a row may have a length that is no group of the kernels.
TEST_F(Int4CheckpointTest, AGroupAsLongAsAnyRowIsTheSameAsOneOf128Columns) {
  const Tensors whole = tensors_;
  for (const int mlp_size : {40, 48}) {
    tensors_ = whole;
    CutMlp(mlp_size);
    const auto rounded = Load(Quantization::kInt4);
    ASSERT_TRUE(rounded.ok()) << rounded.status();
    StorePackQuantized();
    config_["quantization_config"]["config_groups"]["group_0"]["weights"]["strategy"] = "channel";
    config_["quantization_config"]["config_groups"]["group_0"]["weights"].erase("group_size");
    const auto model = Load();
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(LogitsOf(**model), LogitsOf(**rounded)) << mlp_size;
    config_.erase("quantization_config");
  }
}

// What a file says of its version is not reliable, so it does not count for symmetric weights.
TEST_F(Int4CheckpointTest, TheStoredZeroPointsOfSymmetricGptqDecideItsVersion) {
  StoreGptq(0);
  config_["quantization_config"]["sym"] = true;
  std::vector<std::vector<Logits>> results;
  for (const char* flag : {"gptq", "gptq_v2"}) {
    for (const uint32_t word : {0x77777777u, 0x88888888u}) {
      for (auto& [name, tensor] : tensors_) {
        if (absl::EndsWith(name, "qzeros")) tensor.bytes = BytesOf(std::vector<uint32_t>(tensor.shape[1], word));
      }
      config_["quantization_config"]["checkpoint_format"] = flag;
      const auto model = Load();
      ASSERT_TRUE(model.ok()) << model.status();
      results.push_back(LogitsOf(**model));
      EXPECT_EQ(results.back(), results.front()) << flag << " " << word;
    }
  }
  ExpectRefused([&](Tensors* t) { (*t)[absl::StrCat(kQuery, "qzeros")].bytes[0] = '\x66'; },
                "q_proj.qzeros has other zero points than 7 or 8, but the weights are symmetric (sym)");
}

// Each matrix has groups of 32 columns in a random order. The same weights are a model of floats.
class ActivationOrderTest : public Int4CheckpointTest {
 protected:
  ActivationOrderTest() {
    dequantized_ = tensors_;
    StoreAll([&](const std::string& base, const QuantizedMatrix& m) {
      const int groups = m.cols / 32;
      const std::vector<int32_t> index = GroupIndex(m.cols);
      std::vector<float> scales, weights;
      for (int i = 0; i < groups * m.rows; ++i) scales.push_back(0.01f * (1 + i % 7));
      for (int n = 0; n < m.rows; ++n) {
        for (int k = 0; k < m.cols; ++k) {
          weights.push_back((m.values[n * m.cols + k] - 8) * scales[index[k] * m.rows + n]);
        }
      }
      const auto packed = Words(m.cols / 8 * m.rows, [&](int word, int i) {
        return m.values[word % m.rows * m.cols + word / m.rows * 8 + i];
      });
      const std::vector<uint32_t> zeros(groups * m.rows / 8, 0x77777777);
      tensors_[base + "qweight"] = {"I32", {m.cols / 8, m.rows}, BytesOf(packed)};
      tensors_[base + "qzeros"] = {"I32", {groups, m.rows / 8}, BytesOf(zeros)};
      tensors_[base + "scales"] = {"F32", {groups, m.rows}, BytesOf(scales)};
      tensors_[base + "g_idx"] = {"I32", {m.cols}, BytesOf(index)};
      dequantized_[base + "weight"].bytes = BytesOf(weights);
    });
    config_["quantization_config"] =
        json::parse(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "sym": true})");
  }

  static std::vector<int32_t> GroupIndex(int cols) {
    std::vector<int32_t> index;
    for (int k = 0; k < cols; ++k) index.push_back(k * 7 % cols / 32);
    return index;
  }

  Tensors dequantized_;
};

// Columns at the places of a rank's columns may belong to another rank, so ranks have rows of these matrices.
TEST_F(ActivationOrderTest, TwoRanksHaveTheBitsOfOne) {
  directory_.Write("model.safetensors", File());
  directory_.Write("config.json", config_.dump());
  const auto one = LoadModel(directory_.path(), backend_.get());
  ASSERT_TRUE(one.ok()) << one.status();
  const std::vector<Logits> expected = LogitsOf(**one);
  LocalGroup group(2);
  std::vector<std::vector<Logits>> actual(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = MakeCpuBackend(1);
      const auto model = LoadModel(directory_.path(), backend.get(), /*progress=*/nullptr, {}, /*is_long=*/false, rank,
                                   /*num_ranks=*/2);
      QUIRE_CHECK(model.ok()) << model.status();
      EXPECT_TRUE((*model)->weights.layers[0].down_has_rows);
      actual[rank] = LogitsOf(**model, backend.get(), group.collective(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<Logits>& logits : actual) EXPECT_EQ(logits, expected);
}

TEST_F(ActivationOrderTest, GroupsInTheOrderOfActivationsAreTheirDequantizedModel) {
  directory_.Write("model.safetensors", File());
  directory_.Write("config.json", config_.dump());
  std::map<Int4Inputs, std::vector<Logits>> actual;
  for (const Int4Inputs inputs : {Int4Inputs::kInt8, Int4Inputs::kBFloat16, Int4Inputs::kFloat32}) {
    const auto model = LoadModel(directory_.path(), backend_.get(), /*progress=*/nullptr, {.int4_inputs = inputs});
    ASSERT_TRUE(model.ok()) << model.status();
    actual[inputs] = LogitsOf(**model);
  }
  tensors_ = dequantized_;
  config_.erase("quantization_config");
  const auto plain = Load();
  ASSERT_TRUE(plain.ok()) << plain.status();
  const std::vector<Logits> expected = LogitsOf(**plain);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(RelativeError(actual[Int4Inputs::kFloat32][i], expected[i]), 1e-4f) << "token " << i;
    EXPECT_LT(RelativeError(actual[Int4Inputs::kBFloat16][i], expected[i]), 0.02f) << "token " << i;
    EXPECT_LT(RelativeError(actual[Int4Inputs::kInt8][i], expected[i]), 0.1f) << "token " << i;
  }
}

TEST_F(ActivationOrderTest, GroupsOfAnotherSizeAreRefused) {
  const std::string down = "model.layers.0.mlp.down_proj.g_idx";
  ExpectRefused([&](Tensors* t) { (*t)[down].bytes = BytesOf(std::vector<int32_t>(64, 1)); },
                "down_proj.g_idx has 0 columns in group 0, expected 32");
  ExpectRefused([&](Tensors* t) { (*t)[down].bytes = BytesOf(std::vector<int32_t>(64, -1)); },
                "down_proj.g_idx has -1 for column 0, it must be in 0 .. 1");
}

// Without the tensor, columns would be multiplied by the scales of other groups.
TEST_F(ActivationOrderTest, TheOrderThatTheConfigNamesMustBeInTheFile) {
  ExpectRefused([](Tensors* t) { t->erase("model.layers.1.mlp.down_proj.g_idx"); },
                "tensor model.layers.1.mlp.down_proj.g_idx is missing, expected [64] of I32, because "
                "quantization_config.desc_act of config.json says that groups have columns in another order");
  // One group has all columns in any order.
  const std::string query = "model.layers.0.self_attn.q_proj.g_idx";
  const auto with = Load();
  ASSERT_TRUE(with.ok()) << with.status();
  tensors_.erase(query);
  const auto without = Load();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(LogitsOf(**without), LogitsOf(**with));
}

TEST_F(Int4CheckpointTest, TheOrderOfPackQuantizedMustBeInTheFile) {
  StorePackQuantized();
  json& weights = config_["quantization_config"]["config_groups"]["group_0"]["weights"];
  weights["symmetric"] = true;
  weights["group_size"] = 32;
  for (auto it = tensors_.begin(); it != tensors_.end();) {
    it = absl::EndsWith(it->first, "weight_zero_point") ? tensors_.erase(it) : std::next(it);
  }
  for (auto& [name, tensor] : tensors_) {
    if (!absl::EndsWith(name, "down_proj.weight_scale")) continue;
    tensor.shape[1] = 2;
    tensor.bytes += tensor.bytes;
  }
  for (const json& order : {json("weight"), json("static"), json(false), json(nullptr)}) {
    weights["actorder"] = order;
    const auto model = Load();
    EXPECT_TRUE(model.ok()) << order << ": " << model.status();
  }
  for (const json& order : {json("group"), json("dynamic"), json(true)}) {
    weights["actorder"] = order;
    EXPECT_THAT(ErrorOfLoad(), HasSubstr("tensor model.layers.0.mlp.down_proj.weight_g_idx is missing, expected [64] "
                                         "of I32, because weights.actorder in quantization_config of config.json says"))
        << order;
  }
  weights["actorder"] = "columns";
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("weights.actorder is \"columns\", must be \"group\" or \"weight\""));
}

// Versions of compressed-tensors store the zero points of symmetric weights as well.
TEST_F(Int4CheckpointTest, ZeroPointsOfSymmetricWeightsMustBeInTheMiddle) {
  StorePackQuantized();
  config_["quantization_config"]["config_groups"]["group_0"]["weights"]["symmetric"] = true;
  EXPECT_THAT(ErrorOfLoad(),
              HasSubstr("q_proj.weight_zero_point is I32 [4, 1] with other zero points than 8, but "
                        "weights.symmetric in quantization_config of config.json is true; it must be false"));
  const auto store = [&](const char* dtype, int rows_per_zero, const std::vector<uint32_t>& words) {
    for (auto& [name, tensor] : tensors_) {
      if (!absl::EndsWith(name, "weight_zero_point")) continue;
      const int64_t rows = tensors_.at(std::string(absl::StripSuffix(name, "zero_point")) + "packed").shape[0];
      tensor = {dtype, {rows / rows_per_zero, 1}, ""};
      const auto num_bytes = static_cast<size_t>(rows_per_zero == 8 ? rows / 2 : rows);
      while (tensor.bytes.size() < num_bytes) tensor.bytes += BytesOf(words);
    }
  };
  store("I32", 8, {0x88888888});
  const auto packed = Load();
  ASSERT_TRUE(packed.ok()) << packed.status();
  const std::vector<Logits> expected = LogitsOf(**packed);
  store("I8", 1, {0});
  const auto plain = Load();
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(LogitsOf(**plain), expected);
  for (auto it = tensors_.begin(); it != tensors_.end();) {
    it = absl::EndsWith(it->first, "weight_zero_point") ? tensors_.erase(it) : std::next(it);
  }
  const auto without = Load();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(LogitsOf(**without), expected);
}

TEST_F(Int4CheckpointTest, PackedZeroPointsOf0AreNotInTheMiddle) {
  StorePackQuantized();
  config_["quantization_config"]["config_groups"]["group_0"]["weights"]["symmetric"] = true;
  for (auto& [name, tensor] : tensors_) {
    if (absl::EndsWith(name, "weight_zero_point")) tensor.bytes.assign(tensor.bytes.size(), '\0');
  }
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("q_proj.weight_zero_point is I32 [4, 1] with other zero points than 8"));
}

TEST_F(Int4CheckpointTest, InputsInFloat32ChangeTheLogitsLittle) {
  StorePackQuantized();
  const auto rounded = Load();
  ASSERT_TRUE(rounded.ok());
  const auto exact =
      LoadModel(directory_.path(), backend_.get(), /*progress=*/nullptr, {.int4_inputs = Int4Inputs::kFloat32});
  ASSERT_TRUE(exact.ok()) << exact.status();
  const std::vector<Logits> a = LogitsOf(**rounded), b = LogitsOf(**exact);
  EXPECT_NE(a, b);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(RelativeError(a[i], b[i]), 0.1f) << "token " << i;
}

TEST_F(Int4CheckpointTest, AWrongTensorIsNamed) {
  const auto name = [](const char* part) { return absl::StrCat(kQuery, part); };
  const auto erase = [&](const char* part) { return [=](Tensors* t) { t->erase(name(part)); }; };
  const auto retype = [&](const char* part, const char* dtype) {
    return [=](Tensors* t) { (*t)[name(part)].dtype = dtype; };
  };
  const Tensors plain = tensors_;
  StorePackQuantized();
  ExpectRefused(
      [&](Tensors* t) {
        (*t)[name("weight_packed")].shape = {4, 32};
      },
      "q_proj.weight_packed is I32 [4, 32], expected [32, 4] of I32");
  ExpectRefused(erase("weight_scale"), "q_proj.weight_scale is missing, expected [32, 1] of F32, BF16 or F16");
  ExpectRefused(retype("weight_zero_point", "F32"), "q_proj.weight_zero_point is F32 [4, 1], expected [4, 1] of I32");
  ExpectRefused(
      [&](Tensors* t) {
        (*t)[name("weight_shape")] = {"I64", {1}, std::string(8, '\0')};
      },
      "q_proj.weight_shape is I64 [1], expected [2] of I64");
  ExpectRefused(erase("weight_packed"), "only one is quantized");
  tensors_ = plain;
  StoreGptq(1);
  ExpectRefused(erase("scales"), "q_proj.scales is missing, expected [1, 32] of F32, BF16 or F16");
  ExpectRefused(retype("qzeros", "F32"), "q_proj.qzeros is F32 [1, 4], expected [1, 4] of I32");
  ExpectRefused([&](Tensors* t) { (*t)[name("g_idx")].bytes[12] = 1; },
                "q_proj.g_idx has 1 for column 3, it must be in 0 .. 0");
  tensors_ = plain;
  StoreAwq();
  ExpectRefused(
      [&](Tensors* t) {
        (*t)[name("qweight")].shape = {4, 32};
      },
      "q_proj.qweight is I32 [4, 32], expected [32, 4] of I32");
}

TEST_F(Int4CheckpointTest, OtherKindsAreRefusedByName) {
  const Tensors plain = tensors_;
  StorePackQuantized();
  const std::string group = "/config_groups/group_0";
  ExpectRefused(group + "/weights/num_bits", 3, "weights.num_bits is 3, must be 4 or 8");
  ExpectRefused(group + "/weights/num_bits", 6, "weights.num_bits is 6, must be 4 or 8");
  ExpectRefused(group + "/weights/strategy", "tensor",
                "weights.strategy is \"tensor\", must be \"group\" or \"channel\"");
  ExpectRefused(group + "/weights/group_size", 48,
                "weights.group_size is 48, must be 32, 64, a multiple of 128, or -1");
  ExpectRefused(group + "/input_activations", json{{"num_bits", 8}},
                "input_activations is {\"num_bits\":8}, must be absent with this format");
  ExpectRefused("/format", "nvfp4-pack-quantized", "format is \"nvfp4-pack-quantized\", must be");
  tensors_ = plain;
  StoreGptq(1);
  ExpectRefused("/bits", 3, "quantization_config.bits is 3, must be 4 or 8");
  ExpectRefused("/bits", 5, "quantization_config.bits is 5, must be 4 or 8");
  ExpectRefused("/group_size", 0, "quantization_config.group_size is 0, must be 32, 64, a multiple of 128, or -1");
  ExpectRefused("/lm_head", true, "quantization_config.lm_head is true, must be false");
  ExpectRefused("/dynamic", json{{"+:.*", {{"bits", 8}}}}, "quantization_config.dynamic is");
  ExpectRefused("/checkpoint_format", "marlin", "checkpoint_format is \"marlin\", must be \"gptq\" or \"gptq_v2\"");
  tensors_ = plain;
  StoreAwq();
  ExpectRefused("/bits", 8, "quantization_config.bits is 8, must be 4");
  ExpectRefused("/zero_point", false, "quantization_config.zero_point is false, must be true");
  ExpectRefused("/version", "gemv", "quantization_config.version is \"gemv\", must be \"gemm\"");
}

// Each damage is one random byte of the header or the config. The result is a model or an error of one line.
TEST_F(Int4CheckpointTest, DamagedCheckpointsAreRefusedOrLoaded) {
  const Tensors plain = tensors_;
  std::mt19937 random(7);
  for (const int kind : {0, 1, 2}) {
    tensors_ = plain;
    kind == 0 ? StorePackQuantized() : kind == 1 ? StoreGptq(1) : StoreAwq();
    const std::string file = File(), config = config_.dump();
    uint64_t header_bytes;  // Of the JSON, which follows its length.
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    header_bytes += sizeof(header_bytes);
    int num_refused_headers = 0, num_refused_configs = 0;
    for (int i = 0; i < 300; ++i) {
      std::string damaged = file, damaged_config = config;
      if (i % 2 == 0) damaged[random() % header_bytes] = static_cast<char>(random());
      if (i % 2 == 1) damaged_config[random() % config.size()] = static_cast<char>(random());
      directory_.Write("model.safetensors", damaged);
      directory_.Write("config.json", damaged_config);
      const auto model = LoadModel(directory_.path(), backend_.get());
      if (!model.ok()) {
        ++(i % 2 == 0 ? num_refused_headers : num_refused_configs);
        EXPECT_FALSE(model.status().message().empty());
        EXPECT_FALSE(absl::StrContains(model.status().message(), "\n")) << model.status();
      }
    }
    // Most of the 150 damages of each model make other JSON, or another number or name.
    EXPECT_GT(num_refused_headers, 100) << "kind " << kind;
    EXPECT_GT(num_refused_configs, 50) << "kind " << kind;
  }
}

}  // namespace
}  // namespace quire
