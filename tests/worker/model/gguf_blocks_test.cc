// SPDX-License-Identifier: Apache-2.0

// Models whose matrices stay in the blocks of their GGUF file.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/forwarding_backend.h"
#include "tests/test_paths.h"
#include "tests/worker/model/block_gguf.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "worker/model/gguf.h"
#include "worker/model/model.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using testing::HasSubstr;

constexpr const char* kTypes[] = {"Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"};
const Tokens kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3};

// An input of 8 bits is off by up to half of its scale, which is a 127th of the largest number of its block. With a
// uniform error and a normal input, whose largest of 256 numbers is three times its deviation, that is 0.7 % of the
// deviation (3 / 127 / sqrt(12)), and so much of a product. Two layers have eight such products one after another, and
// the output is one more: 2 %. The largest error of 64 logits is three deviations, and the largest logit two or three,
// so about 2 to 3 % is to be expected. The limit is that of the other formats whose products round inputs to 8 bits.
constexpr float kTolerance = 0.1f;

// The types of a file in Q4_K_M: V and down have more bits, and so has the output matrix.
BlockGguf MixedModel() {
  return {.other_types = {{"attn_v", "Q6_K"}, {"ffn_down", "Q6_K"}, {"attn_output", "Q5_K"}, {"output", "Q8_0"}}};
}

// The experts of a file in Q4_K_M, of which a token uses some.
BlockGguf ExpertModel(int top_k) {
  return {.experts = 5, .top_k = top_k, .other_types = {{"attn_v", "Q6_K"}, {"ffn_down_exps", "Q6_K"}}};
}

// A CPU that multiplies no blocks.
class WithoutBlocks : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  bool MultipliesBlocks() const override { return false; }
};

class GgufBlocksTest : public testing::Test {
 protected:
  // The sets that multiply blocks.
  static std::vector<cpu::Isa> Isas() {
    std::vector<cpu::Isa> isas = cpu::SupportedIsas();
    std::erase(isas, cpu::Isa::kAmx);
    return isas;
  }
  GgufBlocksTest() : backend_(cpu::MakeCpuBackend(1, Isas().back())) { SetLogLevel(LogLevel::kError); }
  ~GgufBlocksTest() override { SetLogLevel(LogLevel::kInfo); }

  absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& file, const WeightRounding& rounding = {},
                                              Backend* backend = nullptr) {
    directory_.Write("model.gguf", file);
    return LoadModel(directory_.path() + "/model.gguf", backend == nullptr ? backend_.get() : backend, nullptr,
                     rounding);
  }
  std::vector<Logits> LogitsOf(const std::string& file, const WeightRounding& rounding = {}, Backend* backend = nullptr,
                               int chunk = 64) {
    const auto model = Load(file, rounding, backend);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    PagedRunner runner(model->get(), backend == nullptr ? backend_.get() : backend, {});
    return runner.Prefill(0, kPrompt, chunk);
  }

  const std::unique_ptr<Backend> backend_;
  const TestDirectory directory_;
};

TEST_F(GgufBlocksTest, LogitsAreThoseOfTheSameNumbersBesideTheRoundingOfInputs) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    BlockGguf model = {.type = type};
    const std::vector<Logits> blocks = LogitsOf(model.File());
    const std::vector<Logits> widened = LogitsOf(model.File(), {.keeps_blocks = false});
    model.as_floats = true;
    const std::vector<Logits> floats = LogitsOf(model.File());
    EXPECT_LT(LargestError(widened, floats), kTolerance);
    EXPECT_LT(LargestError(blocks, floats), kTolerance);
    EXPECT_NE(blocks, widened);
  }
}

TEST_F(GgufBlocksTest, SeveralTypesInOneProductAndOutputMatrixAreMultipliedAsTheyAre) {
  for (const bool is_tied : {false, true}) {
    BlockGguf model = MixedModel();
    model.is_tied = is_tied;
    const auto loaded = Load(model.File());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE((*loaded)->weights.rounding.keeps_blocks);
    const StoredBlocks& blocks = (*loaded)->config.quantization.blocks;
    const int64_t attention = 256 * 256 * 2 + 256 * 128 * 2, mlp = 3 * 256 * 512;
    EXPECT_EQ(blocks.layers.weights, 2 * (attention + mlp));
    EXPECT_EQ(blocks.embedding.weights, 64 * 256);
    EXPECT_EQ(blocks.output.weights, is_tied ? 0 : 64 * 256);
    // Q4_K of Q, K, gate and up; Q6_K of V and down; Q5_K of the output of attention.
    EXPECT_EQ(blocks.layers.bytes, 2 * ((256 + 128 + 512 + 512) * 148 + 128 * 210 + 256 * 2 * 210 + 256 * 180));
    const std::vector<Logits> logits = LogitsOf(model.File());
    model.as_floats = true;
    EXPECT_LT(LargestError(logits, LogitsOf(model.File())), kTolerance);
  }
}

TEST_F(GgufBlocksTest, ATokenAloneHasTheBitsThatItHasInABatch) {
  for (const cpu::Isa isa : Isas()) {
    SCOPED_TRACE(cpu::Name(isa));
    const auto backend = cpu::MakeCpuBackend(1, isa);
    const std::vector<Logits> together = LogitsOf(MixedModel().File(), {}, backend.get(), 64);
    for (const int chunk : {1, 7}) EXPECT_EQ(LogitsOf(MixedModel().File(), {}, backend.get(), chunk), together);
  }
}

// Tokens use all experts, because a rounded input may choose others.
TEST_F(GgufBlocksTest, ExpertsAreMultipliedAsTheyAre) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    BlockGguf model = ExpertModel(/*top_k=*/5);
    model.type = type;
    const auto loaded = Load(model.File());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const int64_t attention = 256 * 256 * 2 + 256 * 128 * 2, expert = 3 * 256 * 512;
    EXPECT_EQ((*loaded)->config.quantization.blocks.layers.weights, 2 * (attention + 5 * expert));
    const std::vector<Logits> blocks = LogitsOf(model.File());
    EXPECT_NE(blocks, LogitsOf(model.File(), {.keeps_blocks = false}));
    model.as_floats = true;
    EXPECT_LT(LargestError(blocks, LogitsOf(model.File())), kTolerance);
  }
}

TEST_F(GgufBlocksTest, ATokenOfExpertsAloneHasTheBitsThatItHasInABatch) {
  for (const char* type : kTypes) {
    for (const cpu::Isa isa : Isas()) {
      SCOPED_TRACE(absl::StrCat(type, " ", cpu::Name(isa)));
      BlockGguf model = ExpertModel(/*top_k=*/2);
      model.type = type;
      const std::string file = model.File();
      const auto backend = cpu::MakeCpuBackend(1, isa);
      const std::vector<Logits> together = LogitsOf(file, {}, backend.get(), 64);
      for (const int chunk : {1, 7}) EXPECT_EQ(LogitsOf(file, {}, backend.get(), chunk), together);
    }
  }
}

// Sets that have equal fingerprints without blocks have equal bits with them.
TEST_F(GgufBlocksTest, InstructionSetsAgree) {
  std::string fingerprint;
  std::vector<Logits> first;
  for (const cpu::Isa isa : Isas()) {
    SCOPED_TRACE(cpu::Name(isa));
    const auto backend = cpu::MakeCpuBackend(1, isa);
    const std::vector<Logits> logits = LogitsOf(MixedModel().File(), {}, backend.get());
    if (backend->NumericsFingerprint() == fingerprint) {
      EXPECT_EQ(logits, first);
    } else if (!first.empty()) {
      EXPECT_LT(LargestError(logits, first), 0.01f);
    }
    fingerprint = backend->NumericsFingerprint();
    first = logits;
  }
}

TEST_F(GgufBlocksTest, OtherBackendsAndTheFlagConvertBlocks) {
  WithoutBlocks backend(cpu::MakeCpuBackend(1, Isas().back()));
  const std::string file = MixedModel().File();
  EXPECT_EQ(LogitsOf(file, {}, &backend), LogitsOf(file, {.keeps_blocks = false}));
  EXPECT_FALSE((*Load(file, {}, &backend))->weights.rounding.keeps_blocks);
  EXPECT_FALSE((*Load(file, {.keeps_blocks = false}))->weights.rounding.keeps_blocks);
}

// --quantize rounds the matrices of the layers, and the others stay in blocks.
TEST_F(GgufBlocksTest, RoundedLayersAreNotInBlocks) {
  BlockGguf model = MixedModel();
  const auto rounded = Load(model.File(), {.layers = Quantization::kInt8});
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  EXPECT_TRUE((*rounded)->weights.rounding.keeps_blocks);
  EXPECT_EQ((*rounded)->weights.rounding.layers, Quantization::kInt8);
}

// Gate and up are one matrix, so they have one type or become bfloat16.
TEST_F(GgufBlocksTest, AGateOfAnotherTypeIsConverted) {
  BlockGguf model = {.other_types = {{"ffn_gate", "Q6_K"}}};
  const auto loaded = Load(model.File());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->config.quantization.blocks.layers.weights, 2 * (256 * 256 * 2 + 256 * 128 * 2 + 256 * 512));
  const std::vector<Logits> logits = LogitsOf(model.File());
  model.as_floats = true;
  EXPECT_LT(LargestError(logits, LogitsOf(model.File())), kTolerance);
}

TEST_F(GgufBlocksTest, AScaleThatIsNotFiniteIsNamed) {
  for (const char* type : kTypes) {
    std::string file = BlockGguf{.layers = 1, .type = type}.File();
    const auto contents = ParseGguf(file, "model.gguf");
    ASSERT_TRUE(contents.ok());
    const auto tensor = std::find_if(contents->tensors.begin(), contents->tensors.end(),
                                     [](const Tensor& one) { return one.name == "blk.0.ffn_down.weight"; });
    const GgufTensorType& stored = *FindGgufTensorType(std::string_view(type));
    const size_t row = 512 / stored.block_elements * stored.block_bytes;
    const size_t in_block = static_cast<size_t>(ShapeOf(*FindBlockType(type)).scale_at);
    const size_t at = static_cast<size_t>(tensor->bytes.data() - file.data()) + 5 * row + stored.block_bytes + in_block;
    const bool is_byte = std::string_view(type) == "MXFP4";
    if (is_byte) {
      file[at] = static_cast<char>(253);
    } else {
      file[at] = 0;
      file[at + 1] = 0x7c;
    }
    EXPECT_THAT(
        std::string(Load(file).status().message()),
        HasSubstr(absl::StrCat("tensor blk.0.ffn_down.weight is ", type, " [256, 512], and a scale of its row 5 is ",
                               is_byte ? "253, at most 252 makes finite weights" : "infinite or not a number")));
  }
}

// tests/golden/gguf/blocks.gguf: a matrix of each type, and what the package gguf makes of it.
TEST_F(GgufBlocksTest, PackedBlocksHoldTheNumbersOfTheReference) {
  const std::string file = ReadWholeFile(SourcePath("tests/golden/gguf/blocks.gguf"));
  const auto contents = ParseGguf(file, "blocks.gguf");
  ASSERT_TRUE(contents.ok()) << contents.status();
  int num_types = 0;
  for (const Tensor& tensor : contents->tensors) {
    const std::optional<BlockType> type = FindBlockType(tensor.dtype);
    if (!type.has_value()) continue;
    SCOPED_TRACE(Describe(tensor));
    const auto is_expected = [&](const Tensor& other) { return other.name == tensor.name + ".dequantized"; };
    const auto expected = std::find_if(contents->tensors.begin(), contents->tensors.end(), is_expected);
    ASSERT_NE(expected, contents->tensors.end());
    std::vector<float> reference;
    AppendAsFloat(expected->bytes, DataType::kFloat32, &reference);
    const BlockMatrixView view = {.blocks = reinterpret_cast<const uint8_t*>(tensor.bytes.data()),
                                  .rows = static_cast<int>(tensor.shape[0]),
                                  .cols = static_cast<int>(tensor.shape[1]),
                                  .type = *type};
    const auto packed = backend_->PackBlocks(&view, 1);
    std::vector<int32_t> rows;
    for (int row = 0; row < view.rows; ++row) rows.push_back(row);
    std::vector<float> values(reference.size());
    backend_->Embed(*packed, rows.data(), view.rows, 1, values.data());
    EXPECT_EQ(values, reference);
    ++num_types;
  }
  EXPECT_EQ(num_types, 6);
}

}  // namespace
}  // namespace quire
