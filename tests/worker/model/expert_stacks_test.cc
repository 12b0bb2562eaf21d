// SPDX-License-Identifier: Apache-2.0

#include "worker/model/expert_stacks.h"

#include <string>

#include "gtest/gtest.h"

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

TEST(ExpertStacksTest, OtherTensorsStayWhole) {
  std::string bytes;
  const std::string name = "model.layers.0.block_sparse_moe.input_linear.weight";
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {4, 3}, &bytes)).empty());
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {2, 3, 4}, &bytes)).empty()) << "an odd number of rows";
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {0, 4, 4}, &bytes)).empty());
  EXPECT_TRUE(MatricesOfExperts(Counting(name, {int64_t{1} << 50, 2, 0}, &bytes)).empty()) << "matrices without bytes";
  EXPECT_TRUE(MatricesOfExperts(Counting("block_sparse_moe.input_linear.weight", {2, 4, 3}, &bytes)).empty());
  EXPECT_TRUE(MatricesOfExperts(Counting("model.layers.0.mlp.gate_proj.weight", {2, 4, 3}, &bytes)).empty());
}

}  // namespace
}  // namespace quire
