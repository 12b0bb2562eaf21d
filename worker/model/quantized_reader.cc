// SPDX-License-Identifier: Apache-2.0

#include "worker/model/quantized_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/ceil_div.h"
#include "kernels/half_float.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gptq_zeros.h"
#include "worker/model/layer_stacks.h"
#include "worker/model/packed_numbers.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

std::vector<float> Floats(const Tensor& tensor) {
  std::vector<float> values;
  AppendAsFloat(tensor.bytes, *WeightType(tensor), &values);
  return values;
}

QuantizedMatrix GroupedMatrix(int rows, int cols, int group) {
  QuantizedMatrix matrix{
      .values = {}, .scales = {}, .rows = rows, .cols = cols, .group = group, .zeros = {}, .order = {}};
  matrix.values.resize(static_cast<size_t>(rows) * cols);
  return matrix;
}

// Makes [cols, rows] of [rows, cols].
template <typename T>
std::vector<T> Transposed(const std::vector<T>& from, int rows, int cols) {
  std::vector<T> to(from.size());
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col)
      to[static_cast<size_t>(col) * rows + row] = from[static_cast<size_t>(row) * cols + col];
  }
  return to;
}

// Repeats the entries of long groups for each of their groups of 128 columns. `from` has `rows` rows of equal length.
template <typename T>
std::vector<T> Repeated(const std::vector<T>& from, int rows, int times, int groups) {
  const int stored = static_cast<int>(from.size()) / rows;
  std::vector<T> to;
  to.reserve(static_cast<size_t>(rows) * groups);
  for (int row = 0; row < rows; ++row) {
    for (int group = 0; group < groups; ++group) to.push_back(from[static_cast<size_t>(row) * stored + group / times]);
  }
  return to;
}

// Gives a matrix groups of 32, 64 or 128 columns, which the kernels know. Longer groups are divided. A shorter one of
// another length takes a whole row, because other groups are refused, so it can be extended.
void FitGroups(QuantizedMatrix* matrix) {
  if (matrix->group <= kMaxInt4Group) {
    const auto group = static_cast<unsigned>(std::max(matrix->group, kMinInt4Group));
    matrix->group = static_cast<int>(std::bit_ceil(group));
    return;
  }
  const int times = CeilDiv(matrix->group, kMaxInt4Group);
  matrix->group = kMaxInt4Group;
  matrix->scales = Repeated(matrix->scales, matrix->rows, times, matrix->num_groups());
  matrix->zeros = Repeated(matrix->zeros, matrix->rows, times, matrix->num_groups());
}

// The weights of a matrix of 8 bits with groups, in the order of the input.
template <typename Element>
void WriteWeights(const QuantizedMatrix& matrix, char* to) {
  const int groups = matrix.num_groups();
  for (int row = 0; row < matrix.rows; ++row) {
    for (int k = 0; k < matrix.cols; ++k) {
      const size_t at = static_cast<size_t>(row) * groups + k / matrix.group;
      const int number = static_cast<uint8_t>(matrix.values[static_cast<size_t>(row) * matrix.cols + k]);
      Element weight;
      FromFloat(static_cast<float>(number - matrix.zeros[at]) * matrix.scales[at], &weight);
      const int col = matrix.order.empty() ? k : matrix.order[k];
      memcpy(to + (static_cast<size_t>(row) * matrix.cols + col) * sizeof(Element), &weight, sizeof(weight));
    }
  }
}

const char* TypeName(DataType type) {
  return type == DataType::kFloat32 ? "F32" : type == DataType::kBFloat16 ? "BF16" : "F16";
}

OwnedTensor Dequantized(const std::string& name, const QuantizedMatrix& matrix, DataType type) {
  const size_t num_bytes = matrix.values.size() * SizeOf(type);
  OwnedTensor result{
      .tensor = {.name = name, .dtype = TypeName(type), .shape = {matrix.rows, matrix.cols}, .bytes = {}},
      .bytes = std::make_unique<char[]>(num_bytes)};
  result.tensor.bytes = {result.bytes.get(), num_bytes};
  switch (type) {
    case DataType::kFloat32:
      WriteWeights<float>(matrix, result.bytes.get());
      break;
    case DataType::kBFloat16:
      WriteWeights<BFloat16>(matrix, result.bytes.get());
      break;
    case DataType::kFloat16:
      WriteWeights<Float16>(matrix, result.bytes.get());
      break;
  }
  return result;
}

}  // namespace

bool QuantizedReader::IsStored(const std::string& weight) const {
  return IsStoredQuantized(tensors_.checkpoint(), quantization_, weight);
}

bool QuantizedReader::Stores(const std::string& weight) const {
  return quantization_.width() != Quantization::kNone && IsStored(weight);
}

absl::StatusOr<QuantizedMatrix> QuantizedReader::Read(const std::string& weight, int rows, int cols) {
  if (quantization_.format == CheckpointFormat::kInt8) return ReadInt8(weight, rows, cols);
  if (quantization_.format == CheckpointFormat::kGgufQ4_0) return ReadGgufQ4(weight, rows, cols);
  if (quantization_.format == CheckpointFormat::kFp8) {
    QUIRE_ASSIGN_OR_RETURN(QuantizedMatrix matrix, tensors_.TakeFp8(weight, {rows, cols}));
    tensors_.Release(weight);
    return matrix;
  }
  DataType type;
  QUIRE_ASSIGN_OR_RETURN(QuantizedMatrix matrix, ReadGroups(weight, rows, cols, &type));
  FitGroups(&matrix);
  return matrix;
}

absl::Status QuantizedReader::Dequantize(const std::string& weight, int rows, int cols) {
  if (quantization_.width() != Quantization::kNone || !IsStored(weight)) return absl::OkStatus();
  if (tensors_.Keeps(weight)) return absl::OkStatus();
  DataType type;
  QUIRE_ASSIGN_OR_RETURN(const QuantizedMatrix matrix, ReadGroups(weight, rows, cols, &type));
  return tensors_.Keep(Dequantized(weight, matrix, type));
}

absl::StatusOr<QuantizedMatrix> QuantizedReader::ReadGroups(const std::string& weight, int rows, int cols,
                                                            DataType* scale_type) {
  const bool is_packed = quantization_.format == CheckpointFormat::kPackQuantized;
  return is_packed ? ReadPackQuantized(weight, rows, cols, scale_type) : ReadByInputs(weight, rows, cols, scale_type);
}

absl::StatusOr<QuantizedMatrix> QuantizedReader::ReadInt8(const std::string& weight, int rows, int cols) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.TakeOfType(weight, "I8", {rows, cols}));
  const auto* values = reinterpret_cast<const int8_t*>(tensor->bytes.data());
  QuantizedMatrix matrix{.values = {values, values + tensor->bytes.size()},
                         .scales = {},
                         .rows = rows,
                         .cols = cols,
                         .zeros = {},
                         .order = {}};
  tensors_.Release(weight);
  QUIRE_ASSIGN_OR_RETURN(matrix.scales, Int8Scales(weight, rows));
  QUIRE_RETURN_IF_ERROR(CheckSymmetricZeros(weight, rows, /*groups=*/1));
  return matrix;
}

absl::StatusOr<QuantizedMatrix> QuantizedReader::ReadGgufQ4(const std::string& weight, int rows, int cols) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.TakeOfType(weight, "Q4_0", {rows, cols}));
  QuantizedMatrix matrix = GroupedMatrix(rows, cols, kQ4BlockColumns);
  const int groups = matrix.num_groups();
  matrix.scales.resize(static_cast<size_t>(rows) * groups);
  matrix.zeros.assign(matrix.scales.size(), MiddleNumber(4));
  const size_t row_bytes = static_cast<size_t>(groups) * kQ4BlockBytes;
  for (int row = 0; row < rows; ++row) {
    UnpackQ4Row(tensor->bytes.substr(row * row_bytes, row_bytes), &matrix.values[static_cast<size_t>(row) * cols],
                &matrix.scales[static_cast<size_t>(row) * groups]);
  }
  tensors_.Release(weight);
  for (size_t i = 0; i < matrix.scales.size(); ++i) {
    if (std::isfinite(matrix.scales[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", weight, " has a scale of row ", i / groups, " that is infinite or not a number"));
  }
  return matrix;
}

absl::StatusOr<std::vector<float>> QuantizedReader::Int8Scales(const std::string& weight, int rows) {
  const std::string name = weight + "_scale";
  const std::vector<int64_t> per_row = {rows, 1};
  QUIRE_ASSIGN_OR_RETURN(
      const Tensor* tensor,
      tensors_.Find(name, absl::StrCat("[", rows, ", 1] or [1] of F32, BF16 or F16"), [&](const Tensor& found) {
        const bool is_single = found.shape.empty() || found.shape == std::vector<int64_t>{1};
        return WeightType(found) && (found.shape == per_row || is_single);
      }));
  QUIRE_ASSIGN_OR_RETURN(tensor, tensors_.Take(name, tensor->shape));
  std::vector<float> scales = Floats(*tensor);
  if (scales.size() == 1) scales.resize(rows, scales.front());
  return scales;
}

// Some versions of compressed-tensors store the zero points of symmetric weights: as numbers, which are 0, or packed
// like the weights, and then they are in the middle.
absl::Status QuantizedReader::CheckSymmetricZeros(const std::string& weight, int rows, int groups) {
  const std::string name = weight + "_zero_point";
  if (!tensors_.Has(name)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Find(name, "", [](const Tensor&) { return true; }));
  QUIRE_ASSIGN_OR_RETURN(tensor, tensors_.TakeOfType(name, tensor->dtype, tensor->shape));
  const bool can_be_packed = quantization_.format == CheckpointFormat::kPackQuantized;
  const int middle = can_be_packed ? MiddleNumber(quantization_.bits) : 0;
  const std::vector<int64_t> packed = {CeilDiv(rows, NumbersPerWord(quantization_.bits)), groups};
  if (can_be_packed && tensor->dtype == "I32" && tensor->shape == packed) {
    std::vector<uint8_t> zeros(static_cast<size_t>(rows) * groups);
    UnpackZeroPoints(tensor->bytes, quantization_.bits, rows, groups, zeros.data());
    if (std::ranges::all_of(zeros, [&](uint8_t zero) { return zero == middle; })) return absl::OkStatus();
  } else if (IsAllZero(tensor->bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " is ", Describe(*tensor), " with other zero points than ", middle,
                   ", but weights.symmetric in quantization_config of config.json is true; ",
                   can_be_packed ? "it must be false if these zero points are meant"
                                 : "with format int-quantized, only symmetric weights are supported"));
}

absl::StatusOr<QuantizedMatrix> QuantizedReader::ReadPackQuantized(const std::string& weight, int rows, int cols,
                                                                   DataType* scale_type) {
  const int bits = quantization_.bits, per_word = NumbersPerWord(bits);
  const int group = StoredGroup(cols), groups = CeilDiv(cols, group);
  QUIRE_ASSIGN_OR_RETURN(const Tensor* packed,
                         tensors_.TakeOfType(weight + "_packed", "I32", {rows, CeilDiv(cols, per_word)}));
  QuantizedMatrix matrix = GroupedMatrix(rows, cols, group);
  UnpackRows(packed->bytes, bits, rows, cols, matrix.values.data());
  tensors_.Release(weight + "_packed");
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, tensors_.Take(weight + "_scale", {rows, groups}));
  matrix.scales = Floats(*scales);
  *scale_type = *WeightType(*scales);
  matrix.zeros.assign(matrix.scales.size(), MiddleNumber(bits));
  if (quantization_.is_symmetric) {
    QUIRE_RETURN_IF_ERROR(CheckSymmetricZeros(weight, rows, groups));
  } else {
    QUIRE_ASSIGN_OR_RETURN(const Tensor* zeros,
                           tensors_.TakeOfType(weight + "_zero_point", "I32", {CeilDiv(rows, per_word), groups}));
    UnpackZeroPoints(zeros->bytes, bits, rows, groups, matrix.zeros.data());
  }
  // The shape of the packed numbers says the same already.
  const std::string shape = weight + "_shape";
  if (tensors_.Has(shape)) QUIRE_RETURN_IF_ERROR(tensors_.TakeOfType(shape, "I64", {2}).status());
  QUIRE_RETURN_IF_ERROR(OrderColumns(weight + "_g_idx", &matrix));
  return matrix;
}

absl::StatusOr<QuantizedMatrix> QuantizedReader::ReadByInputs(const std::string& weight, int rows, int cols,
                                                              DataType* scale_type) {
  const std::string base(absl::StripSuffix(weight, "weight"));
  const bool is_gptq = quantization_.format == CheckpointFormat::kGptq;
  const int bits = quantization_.bits, per_word = NumbersPerWord(bits);
  if ((is_gptq ? cols : rows) % per_word != 0 || rows % per_word != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", base, "qweight has ", rows, " outputs and ", cols,
                                                   " inputs, they must be multiples of ", per_word));
  }
  const int group = StoredGroup(cols), groups = CeilDiv(cols, group);
  const std::vector<int64_t> shape =
      is_gptq ? std::vector<int64_t>{cols / per_word, rows} : std::vector<int64_t>{cols, rows / per_word};
  QUIRE_ASSIGN_OR_RETURN(const Tensor* packed, tensors_.TakeOfType(base + "qweight", "I32", shape));
  QuantizedMatrix matrix = GroupedMatrix(rows, cols, group);
  if (is_gptq) {
    UnpackGptq(packed->bytes, bits, rows, cols, matrix.values.data());
  } else {
    UnpackAwq(packed->bytes, rows, cols, matrix.values.data());
  }
  tensors_.Release(base + "qweight");
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, tensors_.Take(base + "scales", {groups, rows}));
  matrix.scales = Transposed(Floats(*scales), groups, rows);
  *scale_type = *WeightType(*scales);
  QUIRE_ASSIGN_OR_RETURN(const Tensor* zeros, tensors_.TakeOfType(base + "qzeros", "I32", {groups, rows / per_word}));
  if (is_gptq) {
    QUIRE_RETURN_IF_ERROR(ReadGptqZeros(*zeros, rows, groups, &matrix));
  } else {
    std::vector<uint8_t> by_group(matrix.scales.size());
    UnpackAwqZeros(zeros->bytes, rows, groups, by_group.data());
    matrix.zeros = Transposed(by_group, groups, rows);
  }
  QUIRE_RETURN_IF_ERROR(OrderColumns(base + "g_idx", &matrix));
  return matrix;
}

absl::Status QuantizedReader::ReadGptqZeros(const Tensor& tensor, int rows, int groups, QuantizedMatrix* matrix) {
  const int bits = quantization_.bits;
  const GptqNumbers numbers{.values = matrix->values,
                            .zeros = tensor.bytes,
                            .bits = bits,
                            .rows = rows,
                            .cols = matrix->cols,
                            .group = matrix->group};
  if (quantization_.is_symmetric) {
    // What config.json says of the version is not reliable, and the zero point of symmetric weights is known.
    if (!AreSymmetricGptqZeros(numbers)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " has other zero points than ",
                                                     MiddleNumber(bits) - 1, " or ", MiddleNumber(bits),
                                                     ", but the weights are symmetric (sym)"));
    }
    matrix->zeros.assign(matrix->scales.size(), MiddleNumber(bits));
    return absl::OkStatus();
  }
  if (const std::optional<int> stored_less = GptqZerosStoredLess(numbers); stored_less.has_value()) {
    if (*stored_less != gptq_zeros_stored_less_) {
      QUIRE_LOG(kWarning) << "the zero points of tensor " << tensor.name << " have the layout of version "
                          << (*stored_less == 1 ? 1 : 2) << " of GPTQ, but config.json says version "
                          << (*stored_less == 1 ? 2 : 1) << "; the tensor decides";
    }
    gptq_zeros_stored_less_ = *stored_less;
  }
  std::vector<uint8_t> zeros(matrix->scales.size());
  UnpackGptqZeros(tensor.bytes, bits, rows, groups, gptq_zeros_stored_less_, zeros.data());
  matrix->zeros = Transposed(zeros, groups, rows);
  return absl::OkStatus();
}

absl::Status QuantizedReader::OrderColumns(const std::string& name, QuantizedMatrix* matrix) {
  const int cols = matrix->cols, group = matrix->group, groups = matrix->num_groups();
  if (!tensors_.Has(name)) {
    if (!quantization_.needs_order || groups == 1) return absl::OkStatus();
    const bool is_gptq = quantization_.format == CheckpointFormat::kGptq;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " is missing, expected [", cols, "] of I32, because ",
                     is_gptq ? "quantization_config.desc_act" : "weights.actorder in quantization_config",
                     " of config.json says that groups have columns in another order"));
  }
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.TakeOfType(name, "I32", {cols}));
  std::vector<std::vector<int32_t>> columns(groups);
  for (int k = 0; k < cols; ++k) {
    int32_t index;
    memcpy(&index, tensor->bytes.data() + sizeof(index) * k, sizeof(index));
    if (index < 0 || index >= groups) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " has ", index, " for column ", k, ", it must be in 0 .. ", groups - 1));
    }
    columns[index].push_back(k);
  }
  std::vector<int32_t> order;
  for (int i = 0; i < groups; ++i) {
    const size_t expected = std::min(group, cols - i * group);
    if (columns[i].size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " has ", columns[i].size(), " columns in group ", i, ", expected ", expected));
    }
    order.insert(order.end(), columns[i].begin(), columns[i].end());
  }
  if (std::is_sorted(order.begin(), order.end())) return absl::OkStatus();
  std::vector<int8_t> row(cols);
  for (int n = 0; n < matrix->rows; ++n) {
    int8_t* const values = &matrix->values[static_cast<size_t>(n) * cols];
    for (int k = 0; k < cols; ++k) row[k] = values[order[k]];
    std::copy(row.begin(), row.end(), values);
  }
  matrix->order = std::move(order);
  return absl::OkStatus();
}

}  // namespace quire
