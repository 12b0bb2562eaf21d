// SPDX-License-Identifier: Apache-2.0

#include "tools/quantize/compressed_tensors.h"

#include "kernels/ceil_div.h"
#include "worker/model/packed_numbers.h"

namespace quire::quantize {
namespace {

using nlohmann::ordered_json;

constexpr int kBits = 4;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Packs numbers [rows, cols] along the rows into words [rows, ceil(cols / 8)], the first number in the lowest bits.
std::string PackRows(const QuantizedMatrix& matrix) {
  constexpr int kPerWord = NumbersPerWord(kBits);
  const int64_t words_per_row = CeilDiv(matrix.cols, kPerWord);
  std::vector<uint32_t> words(matrix.rows * words_per_row);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int k = 0; k < matrix.cols; ++k) {
      const auto number = static_cast<uint32_t>(matrix.values[row * matrix.cols + k]);
      words[row * words_per_row + k / kPerWord] |= number << k % kPerWord * kBits;
    }
  }
  return Bytes(words);
}

// Packs zero points [rows, groups] across the rows into words [ceil(rows / 8), groups].
std::string PackZeroPoints(const std::vector<uint8_t>& zeros, int64_t rows, int64_t groups) {
  constexpr int kPerWord = NumbersPerWord(kBits);
  std::vector<uint32_t> words(CeilDiv(rows, kPerWord) * groups);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      words[row / kPerWord * groups + group] |= uint32_t{zeros[row * groups + group]} << row % kPerWord * kBits;
    }
  }
  return Bytes(words);
}

// Repeats the entries of the matrix's groups for each of their groups in the file.
template <typename T>
std::vector<T> ForFileGroups(const std::vector<T>& entries, const QuantizedMatrix& matrix, const Layout& layout) {
  std::vector<T> result;
  const int groups = matrix.cols / layout.group;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int i = 0; i < groups; ++i) {
      result.push_back(entries[row * matrix.num_groups() + i * layout.group / matrix.group]);
    }
  }
  return result;
}

}  // namespace

ordered_json QuantizationConfig(const Layout& layout) {
  ordered_json group = {{"targets", {"Linear"}}};
  if (layout.width == Quantization::kInt8) {
    group["weights"] = {
        {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}, {"dynamic", false}};
    group["input_activations"] = {
        {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
  } else {
    group["weights"] = {{"num_bits", kBits},          {"type", "int"},   {"symmetric", false}, {"strategy", "group"},
                        {"group_size", layout.group}, {"dynamic", false}};
    group["input_activations"] = nullptr;
  }
  group["output_activations"] = nullptr;
  return {{"quant_method", "compressed-tensors"},
          {"format", layout.width == Quantization::kInt8 ? "int-quantized" : "pack-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", layout.plain_modules},
          {"kv_cache_scheme", nullptr},
          {"config_groups", {{"group_0", group}}}};
}

std::vector<TensorEntry> EntriesOf(const std::string& weight, int64_t rows, int64_t cols, const Layout& layout) {
  if (layout.width == Quantization::kInt8) {
    return {{weight, "I8", {rows, cols}, static_cast<uint64_t>(rows * cols)},
            {weight + "_scale", "F32", {rows, 1}, static_cast<uint64_t>(4 * rows)}};
  }
  const int64_t per_word = NumbersPerWord(kBits), groups = cols / layout.group;
  const int64_t words = CeilDiv(cols, per_word), zero_words = CeilDiv(rows, per_word);
  return {{weight + "_packed", "I32", {rows, words}, static_cast<uint64_t>(4 * rows * words)},
          {weight + "_scale", "F32", {rows, groups}, static_cast<uint64_t>(4 * rows * groups)},
          {weight + "_zero_point", "I32", {zero_words, groups}, static_cast<uint64_t>(4 * zero_words * groups)},
          {weight + "_shape", "I64", {2}, 16}};
}

std::vector<std::string> BytesOf(const QuantizedMatrix& matrix, const Layout& layout) {
  if (layout.width == Quantization::kInt8) return {Bytes(matrix.values), Bytes(matrix.scales)};
  const std::vector<uint8_t> zeros = ForFileGroups(matrix.zeros, matrix, layout);
  return {PackRows(matrix), Bytes(ForFileGroups(matrix.scales, matrix, layout)),
          PackZeroPoints(zeros, matrix.rows, matrix.cols / layout.group),
          Bytes(std::vector<int64_t>{matrix.rows, matrix.cols})};
}

}  // namespace quire::quantize
