// SPDX-License-Identifier: Apache-2.0

#include "worker/model/expert_stacks.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/mxfp4.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

// A tensor of bytes 0, 1, 2 and so on.
Tensor Counting(const std::string& name, const std::vector<int64_t>& shape, std::string* bytes) {
  size_t size = 1;
  for (const int64_t dimension : shape) size *= static_cast<size_t>(dimension);
  bytes->clear();
  for (size_t i = 0; i < size; ++i) bytes->push_back(static_cast<char>(i));
  return {.name = name, .dtype = "I8", .shape = shape, .bytes = *bytes};
}

TEST(ExpertStacksTest, EachExpertHasItsGateOverItsUp) {
  std::string bytes;
  const auto matrices =
      MatricesOfExperts(Counting("model.layers.3.block_sparse_moe.input_linear.weight", {2, 4, 3}, &bytes));
  ASSERT_EQ(matrices.size(), 4u);
  const std::string prefix = "model.layers.3.block_sparse_moe.experts.";
  EXPECT_EQ(matrices[0].name, prefix + "0.gate_proj.weight");
  EXPECT_EQ(matrices[1].name, prefix + "0.up_proj.weight");
  EXPECT_EQ(matrices[3].name, prefix + "1.up_proj.weight");
  EXPECT_EQ(matrices[3].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(matrices[1].bytes, std::string_view(bytes).substr(6, 6));
  EXPECT_EQ(matrices[3].bytes, std::string_view(bytes).substr(18, 6));
}

TEST(ExpertStacksTest, EachExpertHasItsDown) {
  std::string bytes;
  const auto matrices =
      MatricesOfExperts(Counting("model.layers.0.block_sparse_moe.output_linear.weight", {3, 2, 5}, &bytes));
  ASSERT_EQ(matrices.size(), 3u);
  EXPECT_EQ(matrices[2].name, "model.layers.0.block_sparse_moe.experts.2.down_proj.weight");
  EXPECT_EQ(matrices[2].shape, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(matrices[2].bytes, std::string_view(bytes).substr(20, 10));
}

// Of gpt-oss: [experts, cols, n * rows], and gate and up alternate.
TEST(ExpertStacksTest, GateAndUpMayAlternate) {
  std::string bytes;
  const auto matrices = MatricesOfExperts(Counting("model.layers.1.mlp.experts.gate_up_proj", {2, 3, 4}, &bytes));
  ASSERT_EQ(matrices.size(), 4u);
  EXPECT_EQ(matrices[1].name, "model.layers.1.mlp.experts.0.gate_up_proj.up.weight");
  EXPECT_EQ(matrices[2].name, "model.layers.1.mlp.experts.1.gate_up_proj.gate.weight");
  EXPECT_EQ(matrices[2].shape, (std::vector<int64_t>{2, 3}));
  ASSERT_TRUE(matrices[1].places.has_value());
  // Row 1 and column 2 of up are in row 2 and column 3 of the transposed matrices.
  EXPECT_EQ(matrices[1].bytes[matrices[1].places->Of(1, 2)], 2 * 4 + 3);
  EXPECT_EQ(matrices[2].bytes[matrices[2].places->Of(1, 2)], 12 + 2 * 4 + 2);

  const auto biases = MatricesOfExperts(Counting("model.layers.1.mlp.experts.gate_up_proj_bias", {2, 4}, &bytes));
  ASSERT_EQ(biases.size(), 4u);
  EXPECT_EQ(biases[3].name, "model.layers.1.mlp.experts.1.gate_up_proj.up.bias");
  EXPECT_EQ(biases[3].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(biases[3].bytes[biases[3].places->Of(1, 0)], 4 + 3);
}

// Every number of the lookup table, with scales of 2^-1 and 2^2. The numbers of a byte begin with the lower 4 bits.
TEST(ExpertStacksTest, NumbersOfFourBitsHaveScalesOfTheirGroups) {
  std::string blocks, scales;
  for (int row = 0; row < 4; ++row) {
    for (int i = 0; i < kMxfp4GroupBytes; ++i)
      blocks.push_back(static_cast<char>((row % 2 == 0 ? i : 15 - i) | i << 4));
    scales.push_back(static_cast<char>(row < 2 ? 126 : 129));
  }
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj";
  const auto matrices = MatricesOfExperts({name + "_blocks", "U8", {1, 4, 1, kMxfp4GroupBytes}, blocks});
  const auto all_scales = MatricesOfExperts({name + "_scales", "U8", {1, 4, 1}, scales});
  ASSERT_EQ(matrices.size(), 2u);
  ASSERT_EQ(all_scales.size(), 2u);
  EXPECT_EQ(all_scales[1].name, matrices[1].name + kMxfp4ScalesSuffix);
  EXPECT_EQ(matrices[1].dtype, kMxfp4Type);
  EXPECT_EQ(matrices[1].shape, (std::vector<int64_t>{2, 32}));
  const auto up = DequantizeMxfp4(matrices[1], all_scales[1]);
  ASSERT_TRUE(up.ok()) << up.status();
  std::vector<float> values;
  AppendAsFloat(up->tensor.bytes, DataType::kBFloat16, &values);
  const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  ASSERT_EQ(values.size(), 64u);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[2 * i], numbers[15 - i] / 2) << i;
    EXPECT_EQ(values[2 * i + 1], numbers[i] / 2) << i;
    EXPECT_EQ(values[32 + 2 * i], numbers[15 - i] * 4) << i;
    EXPECT_EQ(values[32 + 2 * i + 1], numbers[i] * 4) << i;
  }

  // The same in blocks, which have the first 16 numbers in the low halves of their bytes.
  const OwnedTensor in_blocks = Mxfp4InBlocks(matrices[1], all_scales[1]);
  ASSERT_TRUE(IsGgufQuantized(in_blocks.tensor));
  EXPECT_FALSE(in_blocks.tensor.places.has_value());
  EXPECT_EQ(in_blocks.tensor.bytes.size(), 2 * 17u);
  std::vector<float> from_blocks;
  const OwnedTensor dequantized = DequantizeGgufTensor(in_blocks.tensor);
  AppendAsFloat(dequantized.tensor.bytes, DataType::kBFloat16, &from_blocks);
  EXPECT_EQ(from_blocks, values);  // Blocks have no -0, which equals 0.

  scales[3] = static_cast<char>(255);
  const auto broken = MatricesOfExperts({name + "_scales", "U8", {1, 4, 1}, scales});
  EXPECT_EQ(
      DequantizeMxfp4(matrices[1], broken[1]).status().message(),
      "tensor model.layers.0.mlp.experts.0.gate_up_proj.up.weight_scales has the scale 255 in row 1 and column 0, "
      "which is no number");
}

TEST(ExpertStacksTest, OtherTensorsStayWhole) {
  std::string bytes;
  const std::string name = "model.layers.0.block_sparse_moe.input_linear.weight";
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {4, 3}, &bytes)).empty());
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {2, 3, 4}, &bytes)).empty()) << "an odd number of rows";
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {0, 4, 4}, &bytes)).empty());
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {int64_t{1} << 50, 2, 0}, &bytes)).empty()) << "matrices without bytes";
  EXPECT_TRUE(MatricesOfExperts(Counting("block_sparse_moe.input_linear.weight", {2, 4, 3}, &bytes)).empty());
  EXPECT_TRUE(MatricesOfExperts(Counting("model.layers.0.mlp.gate_proj.weight", {2, 4, 3}, &bytes)).empty());
  const std::string gpt_oss = "model.layers.0.mlp.experts.gate_up_proj";
  EXPECT_TRUE(MatricesOfExperts(Counting(gpt_oss, {2, 4, 3}, &bytes)).empty()) << "an odd number of columns";
  EXPECT_TRUE(MatricesOfExperts(Counting(gpt_oss + "_bias", {2, 3}, &bytes)).empty()) << "an odd number of rows";
  EXPECT_TRUE(MatricesOfExperts(Counting(gpt_oss + "_blocks", {2, 4, 1, 16}, &bytes)).empty()) << "I8, not U8";
  EXPECT_TRUE(MatricesOfExperts({gpt_oss + "_blocks", "U8", {1, 2, 1, 8}, bytes}).empty()) << "8 bytes of a group";
}

}  // namespace
}  // namespace quire
