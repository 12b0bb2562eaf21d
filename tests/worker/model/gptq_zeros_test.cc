// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gptq_zeros.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/worker/model/quantized_checkpoint.h"
#include "worker/model/checkpoint.h"
#include "worker/model/load_progress.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/tensor_reader.h"

namespace quire {
namespace {

// A matrix of normally distributed weights, whose numbers reach from 0 to the largest one in every group.
class RandomGptq {
 public:
  RandomGptq(int bits, int rows, int cols, int group, double mean = 0)
      : bits_(bits), rows_(rows), cols_(cols), group_(group) {
    std::mt19937 random(5);
    std::normal_distribution<double> weight(mean, 1);
    const int largest = (1 << bits) - 1, groups = (cols + group - 1) / group;
    values_.resize(static_cast<size_t>(rows) * cols);
    zeros_.resize(static_cast<size_t>(groups) * rows);
    for (int row = 0; row < rows; ++row) {
      for (int first = 0; first < cols; first += group) {
        std::vector<double> weights(std::min(group, cols - first));
        for (double& value : weights) value = weight(random);
        const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
        const double scale = (std::max(*high, 0.0) - std::min(*low, 0.0)) / largest;
        const double zero = std::round(-std::min(*low, 0.0) / scale);
        zeros_[static_cast<size_t>(first / group) * rows + row] = static_cast<int>(zero);
        for (size_t i = 0; i < weights.size(); ++i) {
          values_[static_cast<size_t>(row) * cols + first + i] =
              static_cast<int8_t>(std::clamp<int>(std::lround(weights[i] / scale + zero), 0, largest));
        }
      }
    }
  }

  // The words of the zero points, less `subtracted`.
  std::string Words(int subtracted) const {
    const int per_word = 32 / bits_;
    std::string words(zeros_.size() * bits_ / 8, '\0');
    for (size_t i = 0; i < zeros_.size() / per_word; ++i) {
      uint32_t word = 0;
      for (int j = 0; j < per_word; ++j) word |= static_cast<uint32_t>(zeros_[i * per_word + j]) << j * bits_;
      word -= subtracted * (bits_ == 4 ? 0x11111111u : 0x01010101u);
      std::memcpy(words.data() + 4 * i, &word, sizeof(word));
    }
    return words;
  }
  std::optional<int> StoredLess(int subtracted) const {
    return GptqZerosStoredLess({values_, Words(subtracted), bits_, rows_, cols_, group_});
  }

  // Adds the tensors of a checkpoint with the matrix `name`.
  void Store(const std::string& name, int subtracted, Tensors* tensors) const {
    const int per_word = 32 / bits_;
    const auto groups = static_cast<int64_t>(zeros_.size()) / rows_;
    std::vector<uint32_t> words(values_.size() / per_word);
    for (size_t i = 0; i < values_.size(); ++i) {
      const size_t row = i / cols_, col = i % cols_;
      words[col / per_word * rows_ + row] |= uint32_t{static_cast<uint8_t>(values_[i])} << col % per_word * bits_;
    }
    (*tensors)[name + ".qweight"] = {"I32", {cols_ / per_word, rows_}, BytesOf(words)};
    (*tensors)[name + ".qzeros"] = {"I32", {groups, rows_ / per_word}, Words(subtracted)};
    (*tensors)[name + ".scales"] = {"F32", {groups, rows_}, BytesOf(std::vector<float>(zeros_.size(), 0.5f))};
  }

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  // The zero points [rows, groups].
  std::vector<uint8_t> zeros() const {
    const size_t groups = zeros_.size() / rows_;
    std::vector<uint8_t> zeros(zeros_.size());
    for (size_t i = 0; i < zeros.size(); ++i) zeros[i % rows_ * groups + i / rows_] = static_cast<uint8_t>(zeros_[i]);
    return zeros;
  }

 private:
  const int bits_, rows_, cols_, group_;
  std::vector<int8_t> values_;
  std::vector<int> zeros_;
};

TEST(GptqZerosTest, TheMeanOfTheWeightsTellsTheVersion) {
  const RandomGptq four(4, 64, 200, 128), eight(8, 512, 2048, 128);
  for (const int subtracted : {0, 1}) {
    EXPECT_EQ(four.StoredLess(subtracted), subtracted);
    EXPECT_EQ(eight.StoredLess(subtracted), subtracted);
  }
}

TEST(GptqZerosTest, ASmallMatrixDoesNotTell) {
  const RandomGptq four(4, 8, 128, 128), eight(8, 64, 512, 128);
  for (const int subtracted : {0, 1}) {
    EXPECT_EQ(four.StoredLess(subtracted), std::nullopt);
    EXPECT_EQ(eight.StoredLess(subtracted), std::nullopt);
  }
}

// The step of 4 bits is about 0.35 of the standard deviation, so 0.18 is half of a step.
TEST(GptqZerosTest, WeightsWhoseMeanIsHalfAStepDoNotTell) {
  EXPECT_EQ(RandomGptq(4, 128, 256, 128, 0.18).StoredLess(0), std::nullopt);
}

std::string Repeated(uint32_t word, int count) {
  std::string words(4 * count, '\0');
  for (int i = 0; i < count; ++i) std::memcpy(words.data() + 4 * i, &word, sizeof(word));
  return words;
}

TEST(GptqZerosTest, SymmetricZeroPointsAreAllInTheMiddle) {
  const std::vector<int8_t> values(8 * 32);
  const auto are_symmetric = [&](int bits, const std::string& words) {
    return AreSymmetricGptqZeros({values, words, bits, 8, 32, 32});
  };
  for (const uint32_t word : {0x77777777u, 0x88888888u}) EXPECT_TRUE(are_symmetric(4, Repeated(word, 1)));
  for (const uint32_t word : {0x7f7f7f7fu, 0x80808080u}) EXPECT_TRUE(are_symmetric(8, Repeated(word, 2)));
  for (const uint32_t word : {0x66666666u, 0x99999999u, 0x77777778u}) EXPECT_FALSE(are_symmetric(4, Repeated(word, 1)));
  for (const uint32_t word : {0x77777777u, 0x81818181u, 0x7f7f7f80u}) EXPECT_FALSE(are_symmetric(8, Repeated(word, 2)));
}

class GptqVersionTest : public CheckpointTest {
 protected:
  GptqVersionTest() { tensors_.clear(); }

  // Reads the matrices of a checkpoint in this order. config.json says a version that subtracts `stored_less`.
  void ExpectZeros(int stored_less, const std::vector<std::pair<std::string, const RandomGptq*>>& matrices) {
    directory_.Write("model.safetensors", File());
    const auto checkpoint = Checkpoint::Open(directory_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    LoadProgress progress;
    progress.Begin("the model", /*num_files=*/1, /*total_bytes=*/1 << 20);
    TensorReader tensors(*checkpoint, &progress);
    QuantizedReader reader(
        {.format = CheckpointFormat::kGptq, .group = 128, .is_symmetric = false, .zeros_stored_less = stored_less},
        &tensors);
    for (const auto& [name, numbers] : matrices) {
      const auto matrix = reader.Read(name + ".weight", numbers->rows(), numbers->cols());
      ASSERT_TRUE(matrix.ok()) << matrix.status();
      EXPECT_EQ(matrix->zeros, numbers->zeros()) << name;
    }
  }
};

TEST_F(GptqVersionTest, TheNumbersDecideAgainstTheConfigAndForTheSmallMatricesThatFollow) {
  const RandomGptq large(4, 64, 256, 128), small(4, 8, 128, 128);
  for (const int subtracted : {0, 1}) {
    large.Store("large", subtracted, &tensors_);
    small.Store("small", subtracted, &tensors_);
    for (const int said : {0, 1}) {
      testing::internal::CaptureStderr();
      ExpectZeros(said, {{"large", &large}, {"small", &small}});
      const std::string log = testing::internal::GetCapturedStderr();
      EXPECT_EQ(absl::StrContains(log, "the zero points of tensor large.qzeros have the layout of version"),
                said != subtracted);
    }
  }
}

TEST_F(GptqVersionTest, TheConfigDecidesForSmallMatrices) {
  const RandomGptq small(4, 8, 128, 128);
  for (const int subtracted : {0, 1}) {
    small.Store("small", subtracted, &tensors_);
    ExpectZeros(subtracted, {{"small", &small}});
  }
}

}  // namespace
}  // namespace quire
