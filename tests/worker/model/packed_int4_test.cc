#include "worker/model/packed_int4.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/safetensors.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::Not;

// packed.safetensors has a matrix of 24 rows and 256 columns, in two presets of compressed-tensors.
class PackedInt4Test : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kRows = 24, kCols = 256, kGroups = 2;

  PackedInt4Test() : file_(ReadWholeFile(SourcePath("tests/golden/compressed_tensors/packed.safetensors"))) {}

  std::string Bytes(const std::string& name) const {
    const auto tensors = ParseSafetensors(file_, "packed.safetensors");
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    for (const Tensor& tensor : *tensors) {
      if (tensor.name == std::string(GetParam()) + "." + name) return std::string(tensor.bytes);
    }
    return "";
  }
  std::vector<float> Floats(const std::string& name) const {
    std::vector<float> values;
    AppendAsFloat(Bytes(name), DataType::kFloat32, &values);
    return values;
  }

  const std::string file_;
};

TEST_P(PackedInt4Test, NumbersZeroPointsAndScalesGiveTheWeightsOfThePackage) {
  std::vector<int8_t> values(kRows * kCols);
  UnpackRows(Bytes("weight_packed"), kRows, kCols, values.data());
  std::vector<uint8_t> zeros(kRows * kGroups, kInt4Middle);
  if (const std::string words = Bytes("weight_zero_point"); !words.empty()) {
    UnpackZeroPoints(words, kRows, kGroups, zeros.data());
    EXPECT_THAT(zeros, Not(Each(kInt4Middle)));
  }
  const std::vector<float> scales = Floats("weight_scale"), expected = Floats("dequantized");
  ASSERT_EQ(expected.size(), values.size());
  for (int i = 0; i < kRows * kCols; ++i) {
    const int group = i / (kCols / kGroups);
    ASSERT_EQ(static_cast<float>(values[i] - zeros[group]) * scales[group], expected[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, PackedInt4Test, testing::Values("symmetric", "asymmetric"),
                         [](const auto& info) { return std::string(info.param); });

// The words 0x76543210 and 0xfedcba98.
std::string TwoWords() {
  return std::string("\x10\x32\x54\x76\x98\xba\xdc\xfe", 8);
}

TEST(PackedInt4OrderTest, WordsOfPackQuantizedHoldColumnsOfARowAndRowsOfZeroPoints) {
  std::vector<int8_t> values(10);
  UnpackRows(TwoWords(), 2, 5, values.data());
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 8, 9, 10, 11, 12));
  std::vector<uint8_t> zeros(9);
  UnpackZeroPoints(TwoWords(), 9, 1, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(PackedInt4OrderTest, WordsOfGptqHoldColumnsOfARowAndRowsOfZeroPoints) {
  std::vector<int8_t> values(16);  // Two rows of eight columns.
  UnpackGptq(TwoWords(), 2, 8, values.data());
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  std::vector<uint8_t> zeros(16);  // Two groups of eight rows.
  UnpackGptqZeros(TwoWords(), 8, 2, /*stored_less=*/0, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// The zero points 0, 3, 1, 1, 1, 1, 1, 1 are the word 0x11111130. Less 0x11111111 they are 0x0000001f.
TEST(PackedInt4OrderTest, AZeroPointOf0ThatBorrowedFromItsNeighbourIsRestored) {
  std::vector<uint8_t> zeros(8);
  UnpackGptqZeros(std::string("\x1f\x00\x00\x00", 4), 8, 1, /*stored_less=*/1, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 3, 1, 1, 1, 1, 1, 1));
}

TEST(PackedInt4OrderTest, WordsOfAwqHoldOutputsInAnOrderOfTheirOwn) {
  const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};  // The place of output i in a word.
  std::vector<int8_t> values(16);                // Eight rows of two columns.
  UnpackAwq(TwoWords(), 8, 2, values.data());
  for (int row = 0; row < 8; ++row) {
    EXPECT_EQ(values[2 * row], order[row]);
    EXPECT_EQ(values[2 * row + 1], order[row] + 8);
  }
  std::vector<uint8_t> zeros(8);
  UnpackAwqZeros(TwoWords(), 8, 1, zeros.data());
  EXPECT_THAT(zeros, ElementsAreArray(order));
}

}  // namespace
}  // namespace quire
