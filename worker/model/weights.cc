// SPDX-License-Identifier: Apache-2.0

#include "worker/model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/blocks.h"
#include "kernels/half_float.h"
#include "worker/model/gguf_types.h"
#include "worker/model/layer_check.h"
#include "worker/model/layer_stacks.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/rank_parts.h"
#include "worker/model/shard.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

absl::Status CheckPacked(const std::unique_ptr<PackedMatrix>& matrix, const MatrixPart& part) {
  if (matrix != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("no memory to pack tensor ", part.name));
}

// Checks that the backend multiplies by a matrix as it should, whose first part is `part`.
absl::Status CheckProducts(const std::unique_ptr<PackedMatrix>& matrix, const std::vector<QuantizedMatrixView>& views,
                           const MatrixPart& part, Backend* backend) {
  QUIRE_RETURN_IF_ERROR(CheckPacked(matrix, part));
  const BackendStatus status = backend->CheckQuantized(*matrix, views.data(), static_cast<int>(views.size()));
  if (status.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(backend->Description(), " multiplies by tensor ", part.name, " wrongly: ", status.message()));
}

absl::Status CheckQuantizedCols(const MatrixPart& part, int cols) {
  if (cols <= kMaxQuantizedCols) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", part.name, " has ", cols,
                                                 " columns, a quantized matrix has at most ", kMaxQuantizedCols));
}

// Reads matrices and vectors of a checkpoint, and passes them to the backend. After the backend has copied a tensor,
// the reader releases the file's pages, so that at most one tensor is in memory twice.
class WeightReader {
 public:
  // `stored` says how quantized matrices are stored.
  WeightReader(const ModelConfig& config, const CheckpointQuantization& stored, const Checkpoint& checkpoint,
               Backend* backend, LoadProgress* progress, const WeightRounding& rounding)
      : adds_one_(config.norms_add_one),
        tensors_(checkpoint, progress,
                 stored.format == CheckpointFormat::kFp8 ? std::optional(stored.fp8_block) : std::nullopt,
                 Summary(WholeOf(config))),
        stored_(stored, &tensors_),
        backend_(backend),
        rounding_(rounding),
        keeps_blocks_(rounding.keeps_blocks && backend->MultipliesBlocks()) {
    tensors_.ShareDigests(config.shard.rank, config.shard.size);
  }

  // Whether some matrix was packed in the blocks of its file.
  bool has_blocks() const { return has_blocks_; }
  // The form of the last matrix in memory, for messages. Experts of one layer must agree in it.
  const std::string& form() const { return form_; }

  // Stacks parts with the same number of columns in row order.
  absl::Status Matrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);
  // The same for a matrix of a layer, which may be quantized.
  absl::Status LayerMatrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);

  // The same for the last matrix of attention or of the MLP, of which the rank has `cols` columns. Sets `has_rows` as
  // in LayerWeights.
  absl::Status LastMatrix(const ModelConfig& config, const MatrixPart& part, int cols,
                          std::unique_ptr<PackedMatrix>* result, bool* has_rows);

  // The same for a matrix that is packed in float32, whatever its type.
  absl::Status Float32Matrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);

  // Rounds a matrix to 8 bits.
  absl::Status Int8Matrix(const MatrixPart& part, int cols, std::unique_ptr<PackedMatrix>* result);

  // Packs the two matrices of a gated MLP, which may be quantized.
  absl::Status GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                           std::unique_ptr<PackedMatrix>* result);

  // Converts vectors to float32 and concatenates them.
  absl::Status Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result);
  // Reads the weights of a norm, and adds 1 if the model wants that.
  absl::Status Norm(const std::string& name, int dim, BackendBuffer* result);
  // Reads a number in a tensor of one element. If there is none, the result is the fallback, or an error without one.
  absl::StatusOr<float> Number(const std::string& name, std::optional<float> fallback = {});
  // Copies numbers that are not in the checkpoint.
  absl::Status Copy(const std::vector<float>& values, const char* what, BackendBuffer* result);

  // Logs the tensors that were not read, and returns an error if one would change the others.
  absl::Status CheckUnused(const ModelConfig& config) const { return tensors_.CheckUnused(config); }

  const TensorDigests& digests() const { return tensors_.digests(); }

  // The experts of other ranks: their tensors begin with the prefix. All tensors that are read between the two other
  // calls are read by this rank alone.
  void LeaveToOthers(const std::string& prefix) { tensors_.LeaveToOthers(prefix); }
  void BeginOwn() { tensors_.ShareDigests(/*rank=*/0, /*size=*/1); }
  void EndOwn(const ModelConfig& config) { tensors_.ShareDigests(config.shard.rank, config.shard.size); }

 private:
  // Appends copies of data that is not aligned to `bytes`, which keeps them until they are packed.
  absl::StatusOr<MatrixView> View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes);
  // Returns whether a stack is packed in the blocks of its file.
  bool KeepsBlocks(const std::vector<MatrixPart>& parts, bool is_gated) const {
    return keeps_blocks_ && IsInBlocks(tensors_.checkpoint(), parts, is_gated);
  }
  // The same as View for a matrix in blocks.
  absl::StatusOr<BlockMatrixView> BlockView(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes);
  absl::Status BlockMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                             std::unique_ptr<PackedMatrix>* result);
  // Reads a matrix that is stored quantized, or rounds another one.
  absl::StatusOr<QuantizedMatrix> Quantized(const MatrixPart& part, int cols);
  // Reads a matrix of floating-point numbers and rounds it.
  absl::StatusOr<QuantizedMatrix> Rounded(const MatrixPart& part, int cols, Quantization width);
  absl::Status QuantizedMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                 std::unique_ptr<PackedMatrix>* result);
  // Packs a stack of matrices that were read.
  absl::Status PackQuantized(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                             const std::vector<QuantizedMatrix>& matrices, std::unique_ptr<PackedMatrix>* result);
  // Returns whether a stack is multiplied as quantized numbers. All its parts must be stored in the same way.
  absl::StatusOr<bool> IsQuantized(const std::vector<MatrixPart>& parts) const;

  const bool adds_one_;  // Whether 1 is added to the weights of norms.
  TensorReader tensors_;
  QuantizedReader stored_;
  Backend* const backend_;
  const WeightRounding rounding_;
  const bool keeps_blocks_;
  bool has_blocks_ = false;
  std::string form_;
};

// Returns the type in which matrices are packed together.
std::string FormOf(const std::vector<MatrixView>& views) {
  const auto is_other = [&](const MatrixView& view) { return view.type != views.front().type; };
  return Name(std::ranges::any_of(views, is_other) ? DataType::kFloat32 : views.front().type);
}

// Returns the rows of a matrix in the order of the operations. `bytes` has them in that of the file.
std::unique_ptr<char[]> InOrder(std::string_view bytes, int rows, const RowOrder& order) {
  auto result = std::make_unique_for_overwrite<char[]>(bytes.size());
  const size_t row_bytes = bytes.size() / rows;
  for (int row = 0; row < rows; ++row) {
    std::memcpy(&result[row * row_bytes], &bytes[order.InFile(row) * row_bytes], row_bytes);
  }
  return result;
}

// Returns the bytes [first, first + count) of each row.
std::unique_ptr<char[]> ColumnsOf(std::string_view bytes, int rows, size_t first, size_t count) {
  auto result = std::make_unique_for_overwrite<char[]>(rows * count);
  const size_t row_bytes = bytes.size() / rows;
  for (int row = 0; row < rows; ++row) std::memcpy(&result[row * count], &bytes[row * row_bytes + first], count);
  return result;
}

// Returns the part of the tensor that is needed; nothing if it is the whole.
std::optional<TensorPart> PartOf(const MatrixPart& part, int cols) {
  if (part.tensor_rows == 0 && part.tensor_cols == 0) return std::nullopt;
  return TensorPart{.first_row = part.first_row, .rows = part.rows, .first_col = part.first_col, .cols = cols};
}

absl::StatusOr<MatrixView> WeightReader::View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes) {
  const int tensor_rows = part.whole_rows(), tensor_cols = part.whole_cols(cols);
  QUIRE_RETURN_IF_ERROR(stored_.Dequantize(part.name, tensor_rows, tensor_cols));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor,
                         tensors_.Take(part.name, {tensor_rows, tensor_cols}, PartOf(part, cols)));
  const size_t row_bytes = tensor->bytes.size() / tensor_rows;
  const std::string_view rows = tensor->bytes.substr(part.first_row * row_bytes, part.rows * row_bytes);
  if (part.tensor_cols > 0) {
    bytes->emplace_back(
        ColumnsOf(rows, part.rows, part.first_col * (row_bytes / tensor_cols), cols * (row_bytes / tensor_cols)));
    return MatrixView{bytes->back().data(), part.rows, cols, *WeightType(*tensor), part.NumSlices(cols, /*group=*/0)};
  }
  part.order.head_dim == 0 ? bytes->emplace_back(rows) : bytes->emplace_back(InOrder(rows, part.rows, part.order));
  return MatrixView{bytes->back().data(), part.rows, cols, *WeightType(*tensor), part.NumSlices(cols, /*group=*/0)};
}

// Returns an error if a scale of a block that begins in these rows of a tensor, or in a part of their columns, is not
// finite, or makes weights that are not.
absl::Status CheckBlockScales(const Tensor& tensor, BlockType type, const TensorPart& part) {
  const BlockShape shape = ShapeOf(type);
  const int64_t row_blocks = tensor.shape[1] / shape.columns, first = part.first_col / shape.columns;
  const auto is_finite = [&](const char* at) {
    Float16 half;
    std::memcpy(&half, at, sizeof(half));
    return std::isfinite(ToFloat(half));
  };
  for (int64_t row = part.first_row; row < part.first_row + part.rows; ++row) {
    for (int64_t block = first; block < first + part.cols / shape.columns; ++block) {
      const char* const at = tensor.bytes.data() + (row * row_blocks + block) * shape.bytes;
      if (type == BlockType::kMXFP4) {
        const auto scale = static_cast<uint8_t>(*at);
        if (scale <= kMaxMXFP4Scale) continue;
        return InvalidArgument("tensor ", tensor.name, " is ", Describe(tensor), ", and a scale of its row ", row,
                               " is ", int{scale}, ", at most ", kMaxMXFP4Scale, " makes finite weights");
      }
      if (is_finite(at + shape.scale_at) && (!shape.has_minima || is_finite(at + sizeof(Float16)))) continue;
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " is ", Describe(tensor),
                                                     ", and a scale of its row ", row, " is infinite or not a number"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockMatrixView> WeightReader::BlockView(const MatrixPart& part, int cols,
                                                        std::vector<AlignedBytes>* bytes) {
  const int tensor_rows = part.whole_rows(), tensor_cols = part.whole_cols(cols);
  const std::string dtype = tensors_.checkpoint().Find(part.name)->dtype;
  const BlockType type = *FindBlockType(dtype);
  const BlockShape shape = ShapeOf(type);
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.TakeBlocks(part.name, dtype, {tensor_rows, tensor_cols}));
  QUIRE_RETURN_IF_ERROR(CheckBlockScales(
      *tensor, type, {.first_row = part.first_row, .rows = part.rows, .first_col = part.first_col, .cols = cols}));
  const size_t row_bytes = tensor->bytes.size() / tensor_rows;
  const std::string_view rows = tensor->bytes.substr(part.first_row * row_bytes, part.rows * row_bytes);
  if (part.tensor_cols > 0) {
    QUIRE_CHECK_EQ(part.first_col % shape.columns, 0);
    QUIRE_CHECK_EQ(cols % shape.columns, 0);
    bytes->emplace_back(ColumnsOf(rows, part.rows, static_cast<size_t>(part.first_col / shape.columns) * shape.bytes,
                                  static_cast<size_t>(cols / shape.columns) * shape.bytes));
  } else {
    part.order.head_dim == 0 ? bytes->emplace_back(rows) : bytes->emplace_back(InOrder(rows, part.rows, part.order));
  }
  return BlockMatrixView{.blocks = static_cast<const uint8_t*>(bytes->back().data()),
                         .rows = part.rows,
                         .cols = cols,
                         .type = type,
                         .num_slices = part.NumSlices(cols, shape.columns)};
}

absl::Status WeightReader::BlockMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                         std::unique_ptr<PackedMatrix>* result) {
  std::vector<BlockMatrixView> views;
  std::vector<AlignedBytes> bytes;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(views.emplace_back(), BlockView(part, cols, &bytes));
  }
  *result = is_gated ? backend_->PackGatedBlocks(views[0], views[1])
                     : backend_->PackBlocks(views.data(), static_cast<int>(views.size()));
  form_ = tensors_.checkpoint().Find(parts.front().name)->dtype;
  for (const MatrixPart& part : parts) tensors_.Release(part.name);
  has_blocks_ = true;
  return CheckPacked(*result, parts.front());
}

absl::Status WeightReader::Matrix(const std::vector<MatrixPart>& parts, int cols,
                                  std::unique_ptr<PackedMatrix>* result) {
  if (KeepsBlocks(parts, /*is_gated=*/false)) return BlockMatrices(parts, cols, /*is_gated=*/false, result);
  std::vector<MatrixView> views;
  std::vector<AlignedBytes> bytes;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(views.emplace_back(), View(part, cols, &bytes));
  }
  form_ = FormOf(views);
  *result = backend_->Pack(views.data(), static_cast<int>(views.size()));
  for (const MatrixPart& part : parts) tensors_.Release(part.name);
  return CheckPacked(*result, parts.front());
}

absl::Status WeightReader::LayerMatrix(const std::vector<MatrixPart>& parts, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized(parts));
  return is_quantized ? QuantizedMatrices(parts, cols, /*is_gated=*/false, result) : Matrix(parts, cols, result);
}

absl::Status WeightReader::Float32Matrix(const std::vector<MatrixPart>& parts, int cols,
                                         std::unique_ptr<PackedMatrix>* result) {
  std::vector<float> values;
  int rows = 0;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Take(part.name, {part.rows, cols}));
    AppendAsFloat(tensor->bytes, *WeightType(*tensor), &values);
    tensors_.Release(part.name);
    rows += part.rows;
  }
  const MatrixView view = {values.data(), rows, cols, DataType::kFloat32};
  *result = backend_->Pack(&view, 1);
  return CheckPacked(*result, parts.front());
}

absl::StatusOr<bool> WeightReader::IsQuantized(const std::vector<MatrixPart>& parts) const {
  if (rounding_.layers != Quantization::kNone) return true;
  const bool is_quantized = stored_.Stores(parts.front().name);
  for (const MatrixPart& part : parts) {
    if (stored_.Stores(part.name) == is_quantized) continue;
    if (stored_.CanDequantize()) return false;
    return absl::InvalidArgumentError(absl::StrCat("of the tensors ", parts.front().name, " and ", part.name,
                                                   " only one is quantized; they are multiplied together, so both must "
                                                   "be"));
  }
  return is_quantized;
}

template <typename T>
std::vector<T> Part(const std::vector<T>& entries, size_t row_size, int first_row, int rows) {
  if (entries.empty()) return {};
  const auto first = entries.begin() + static_cast<int64_t>(first_row * row_size);
  return {first, first + static_cast<int64_t>(rows * row_size)};
}

// Returns some rows of a matrix. Every row has its own scales, also in a matrix of FP8 with blocks, so the rows may
// begin and end inside of a block.
QuantizedMatrix RowsOf(const QuantizedMatrix& matrix, int first_row, int rows) {
  const size_t groups = matrix.group == 0 ? 1 : matrix.num_groups();
  return {.values = Part(matrix.values, matrix.cols, first_row, rows),
          .scales = Part(matrix.scales, groups, first_row, rows),
          .rows = rows,
          .cols = matrix.cols,
          .group = matrix.group,
          .zeros = Part(matrix.zeros, groups, first_row, rows),
          .order = matrix.order,
          .is_fp8 = matrix.is_fp8,
          .has_blocks = matrix.has_blocks};
}

template <typename T>
std::vector<T> InOrder(const std::vector<T>& entries, size_t row_size, const RowOrder& order) {
  std::vector<T> result;
  result.reserve(entries.size());
  for (size_t row = 0; row * row_size < entries.size(); ++row) {
    const auto first = entries.begin() + order.InFile(static_cast<int64_t>(row)) * static_cast<int64_t>(row_size);
    result.insert(result.end(), first, first + static_cast<int64_t>(row_size));
  }
  return result;
}

// Returns some columns of a matrix, which are whole groups.
QuantizedMatrix ColumnsOf(const QuantizedMatrix& matrix, int first_col, int cols) {
  QuantizedMatrix result = matrix;
  result.cols = cols;
  const auto cut = [&](const auto& from, size_t row_size, size_t first, size_t count) {
    std::remove_cvref_t<decltype(from)> to;
    for (size_t at = first; at < from.size(); at += row_size) {
      to.insert(to.end(), from.begin() + static_cast<int64_t>(at), from.begin() + static_cast<int64_t>(at + count));
    }
    return to;
  };
  const size_t groups = matrix.num_groups(), first_group = first_col / matrix.group;
  result.values = cut(matrix.values, matrix.cols, first_col, cols);
  result.scales = cut(matrix.scales, groups, first_group, result.num_groups());
  result.zeros = cut(matrix.zeros, groups, first_group, result.num_groups());
  return result;
}

// Brings the rows of a matrix into the order of the operations.
void Order(const RowOrder& order, QuantizedMatrix* matrix) {
  if (order.head_dim == 0) return;
  const size_t groups = matrix->group == 0 ? 1 : matrix->num_groups();
  matrix->values = InOrder(matrix->values, matrix->cols, order);
  matrix->scales = InOrder(matrix->scales, groups, order);
  matrix->zeros = InOrder(matrix->zeros, groups, order);
}

absl::StatusOr<QuantizedMatrix> WeightReader::Quantized(const MatrixPart& part, int cols) {
  if (rounding_.layers != Quantization::kNone) return Rounded(part, cols, rounding_.layers);
  if (part.tensor_rows == 0) {
    QUIRE_ASSIGN_OR_RETURN(QuantizedMatrix matrix, stored_.Read(part.name, part.rows, cols));
    Order(part.order, &matrix);
    return matrix;
  }
  QUIRE_ASSIGN_OR_RETURN(const QuantizedMatrix stack, stored_.Read(part.name, part.tensor_rows, cols));
  QuantizedMatrix matrix = RowsOf(stack, part.first_row, part.rows);
  Order(part.order, &matrix);
  return matrix;
}

absl::Status WeightReader::LastMatrix(const ModelConfig& config, const MatrixPart& part, int cols,
                                      std::unique_ptr<PackedMatrix>* result, bool* has_rows) {
  *has_rows = false;
  if (part.tensor_cols == 0) return LayerMatrix({part}, cols, result);
  const int whole_cols = part.tensor_cols;
  const MatrixPart rows = RowsInPlaceOfColumns(config, part);
  // The sums over columns can be divided if each rank has whole slices.
  const auto lacks_slices = [&](int group) { return rows.NumSlices(whole_cols, group) < config.shard.size; };
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized({part}));
  if (!is_quantized || rounding_.layers != Quantization::kNone) {
    int group = rounding_.layers == Quantization::kInt4 ? kMaxInt4Group : 0;
    if (rounding_.layers == Quantization::kNone && KeepsBlocks({part}, /*is_gated=*/false)) {
      group = ShapeOf(*FindBlockType(tensors_.checkpoint().Find(part.name)->dtype)).columns;
    }
    *has_rows = rounding_.layers == Quantization::kInt8 || lacks_slices(group);
    return *has_rows ? LayerMatrix({rows}, whole_cols, result) : LayerMatrix({part}, cols, result);
  }
  QUIRE_RETURN_IF_ERROR(CheckQuantizedCols(part, whole_cols));
  QUIRE_ASSIGN_OR_RETURN(const QuantizedMatrix whole, stored_.Read(part.name, part.rows, whole_cols));
  // In int8 the input has one scale for all columns. With columns in another order, a rank would need inputs of others.
  *has_rows = whole.group == 0 || !whole.order.empty() || lacks_slices(whole.group);
  if (*has_rows) {
    return PackQuantized({rows}, whole_cols, /*is_gated=*/false, {RowsOf(whole, rows.first_row, rows.rows)}, result);
  }
  return PackQuantized({part}, cols, /*is_gated=*/false, {ColumnsOf(whole, part.first_col, cols)}, result);
}

absl::StatusOr<QuantizedMatrix> WeightReader::Rounded(const MatrixPart& part, int cols, Quantization width) {
  std::vector<AlignedBytes> bytes;
  QUIRE_ASSIGN_OR_RETURN(const MatrixView view, View(part, cols, &bytes));
  QuantizedMatrix matrix = width == Quantization::kInt8 ? QuantizeToInt8(view) : QuantizeToInt4(view);
  tensors_.Release(part.name);
  return matrix;
}

absl::Status WeightReader::Int8Matrix(const MatrixPart& part, int cols, std::unique_ptr<PackedMatrix>* result) {
  QUIRE_RETURN_IF_ERROR(CheckQuantizedCols(part, cols));
  QUIRE_ASSIGN_OR_RETURN(const QuantizedMatrix matrix, Rounded(part, cols, Quantization::kInt8));
  const std::vector<QuantizedMatrixView> views = {matrix.View(rounding_.int4_inputs)};
  *result = backend_->PackQuantized(views.data(), 1);
  return CheckProducts(*result, views, part, backend_);
}

absl::Status WeightReader::QuantizedMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                             std::unique_ptr<PackedMatrix>* result) {
  QUIRE_RETURN_IF_ERROR(CheckQuantizedCols(parts.front(), cols));
  std::vector<QuantizedMatrix> matrices;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(matrices.emplace_back(), Quantized(part, cols));
  }
  return PackQuantized(parts, cols, is_gated, matrices, result);
}

absl::Status WeightReader::PackQuantized(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                         const std::vector<QuantizedMatrix>& matrices,
                                         std::unique_ptr<PackedMatrix>* result) {
  for (size_t i = 1; i < matrices.size(); ++i) {
    if (matrices[i].order == matrices[0].order) continue;
    return absl::InvalidArgumentError(absl::StrCat("the tensors ", parts[0].name, " and ", parts[i].name,
                                                   " have different groups of columns (g_idx); they are multiplied "
                                                   "together, so the groups must be the same"));
  }
  std::vector<QuantizedMatrixView> views;
  for (const QuantizedMatrix& matrix : matrices) {
    views.push_back(matrix.View(rounding_.int4_inputs));
    views.back().num_slices = parts.front().NumSlices(cols, matrix.group);
  }
  form_ = "quantized numbers";
  *result = is_gated ? backend_->PackGatedQuantized(views[0], views[1])
                     : backend_->PackQuantized(views.data(), static_cast<int>(views.size()));
  return CheckProducts(*result, views, parts.front(), backend_);
}

absl::Status WeightReader::GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized({gate, up}));
  if (is_quantized) return QuantizedMatrices({gate, up}, cols, /*is_gated=*/true, result);
  if (KeepsBlocks({gate, up}, /*is_gated=*/true)) return BlockMatrices({gate, up}, cols, /*is_gated=*/true, result);
  std::vector<AlignedBytes> bytes;
  QUIRE_ASSIGN_OR_RETURN(const MatrixView gate_view, View(gate, cols, &bytes));
  QUIRE_ASSIGN_OR_RETURN(const MatrixView up_view, View(up, cols, &bytes));
  form_ = FormOf({gate_view, up_view});
  *result = backend_->PackGated(gate_view, up_view);
  for (const MatrixPart* part : {&gate, &up}) tensors_.Release(part->name);
  return CheckPacked(*result, gate);
}

absl::Status WeightReader::Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result) {
  std::vector<float> values;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor,
                           tensors_.Take(part.name, {part.whole_rows()}, PartOf(part, /*cols=*/1)));
    const size_t first = values.size(), element = SizeOf(*WeightType(*tensor));
    AppendAsFloat(tensor->bytes.substr(part.first_row * element, part.rows * element), *WeightType(*tensor), &values);
    const std::vector<float> in_file(values.begin() + static_cast<int64_t>(first), values.end());
    for (int row = 0; row < part.rows; ++row) values[first + row] = in_file[part.order.InFile(row)];
  }
  return Copy(values, parts.front().name.c_str(), result);
}

absl::Status WeightReader::Norm(const std::string& name, int dim, BackendBuffer* result) {
  std::vector<float> values;
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Take(name, {dim}));
  AppendAsFloat(tensor->bytes, *WeightType(*tensor), &values);
  if (adds_one_) {
    for (float& value : values) value += 1;
  }
  return Copy(values, name.c_str(), result);
}

absl::StatusOr<float> WeightReader::Number(const std::string& name, std::optional<float> fallback) {
  if (fallback.has_value() && !tensors_.Has(name)) return *fallback;
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Find(name, "[1] of F32, BF16 or F16", [](const Tensor& found) {
    return WeightType(found).has_value() && found.bytes.size() == SizeOf(*WeightType(found));
  }));
  QUIRE_ASSIGN_OR_RETURN(tensor, tensors_.Take(name, tensor->shape));
  std::vector<float> values;
  AppendAsFloat(tensor->bytes, *WeightType(*tensor), &values);
  return values.front();
}

absl::Status WeightReader::Copy(const std::vector<float>& values, const char* what, BackendBuffer* result) {
  const size_t bytes = values.size() * sizeof(float);
  QUIRE_ASSIGN_OR_RETURN(*result, BackendBuffer::Allocate(backend_, bytes, what));
  backend_->CopyToDevice(result->get(), values.data(), bytes);
  return absl::OkStatus();
}

absl::Status LoadAttention(const ModelConfig& config, const std::string& prefix, const LayerStacks& stacks,
                           WeightReader* reader, LayerWeights* layer) {
  const ModelConfig whole = WholeOf(config);
  const int q_rows = whole.num_heads * config.head_dim;
  const int kv_rows = whole.num_kv_heads * config.head_dim;
  QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(stacks.qkv, config.hidden_size, &layer->qkv));
  QUIRE_RETURN_IF_ERROR(reader->LastMatrix(config, stacks.attention_output.front(), config.num_heads * config.head_dim,
                                           &layer->attention_output, &layer->attention_output_has_rows));
  if (config.qkv_bias) {
    QUIRE_RETURN_IF_ERROR(reader->Vector(ProjectionsOfRank(config, prefix, ".bias"), &layer->qkv_bias));
  }
  if (config.attention_output_bias) {
    QUIRE_RETURN_IF_ERROR(
        reader->Vector({{prefix + "o_proj.bias", config.hidden_size}}, &layer->attention_output_bias));
  }
  if (config.has_sinks) {
    QUIRE_RETURN_IF_ERROR(reader->Vector({RowsOfRank(config, prefix + "sinks", config.num_heads)}, &layer->sinks));
  }
  if (config.qk_norm != QkNorm::kNone) {
    const bool is_whole = config.qk_norm == QkNorm::kWhole;
    QUIRE_RETURN_IF_ERROR(reader->Norm(absl::StrCat(prefix, config.names.q_norm, ".weight"),
                                       is_whole ? q_rows : config.head_dim, &layer->q_norm));
    QUIRE_RETURN_IF_ERROR(reader->Norm(absl::StrCat(prefix, config.names.k_norm, ".weight"),
                                       is_whole ? kv_rows : config.head_dim, &layer->k_norm));
  }
  return absl::OkStatus();
}

// Transformers keeps the logarithms of exp(alpha) - 1. Older checkpoints lack the other two numbers.
absl::Status LoadXielu(const std::string& prefix, WeightReader* reader, XieluShape* shape) {
  QUIRE_ASSIGN_OR_RETURN(const float positive, reader->Number(prefix + "alpha_p"));
  QUIRE_ASSIGN_OR_RETURN(const float negative, reader->Number(prefix + "alpha_n"));
  QUIRE_ASSIGN_OR_RETURN(shape->beta, reader->Number(prefix + "beta", shape->beta));
  QUIRE_ASSIGN_OR_RETURN(shape->limit, reader->Number(prefix + "eps", shape->limit));
  const auto softplus = [](float x) { return static_cast<float>(x > 20 ? x : std::log1p(std::exp(double{x}))); };
  shape->positive = softplus(positive);
  shape->negative = shape->beta + softplus(negative);
  return absl::OkStatus();
}

absl::Status LoadMlp(const ModelConfig& config, const std::string& prefix, const LayerStacks& stacks,
                     WeightReader* reader, LayerWeights* layer) {
  const int width = stacks.gate_up[0].rows;
  if (config.has_gate()) {
    QUIRE_RETURN_IF_ERROR(
        reader->GatedMatrix(stacks.gate_up[0], stacks.gate_up[1], config.hidden_size, &layer->gate_up));
  } else {
    QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(stacks.gate_up, config.hidden_size, &layer->gate_up));
  }
  if (config.plain_activation == PlainActivation::kXielu) {
    QUIRE_RETURN_IF_ERROR(LoadXielu(prefix + "act_fn.", reader, &layer->xielu));
  }
  QUIRE_RETURN_IF_ERROR(reader->LastMatrix(config, stacks.down.front(), width, &layer->down, &layer->down_has_rows));
  if (config.mlp_bias) {
    std::vector<MatrixPart> biases = {RowsOfRank(config, prefix + "gate_proj.bias", width),
                                      RowsOfRank(config, prefix + "up_proj.bias", width)};
    if (!config.has_gate()) biases.erase(biases.begin());
    QUIRE_RETURN_IF_ERROR(reader->Vector(biases, &layer->gate_up_bias));
    QUIRE_RETURN_IF_ERROR(reader->Vector({{prefix + "down_proj.bias", config.hidden_size}}, &layer->down_bias));
  }
  return absl::OkStatus();
}

// Compares the forms of the matrices of experts with the forms of the first expert of the rank.
class ExpertForms {
 public:
  // Returns an error if the last matrix of the reader, which is matrix `index` of this expert, has another form.
  absl::Status Check(const WeightReader& reader, int expert, int index, const MatrixPart& part) {
    if (static_cast<size_t>(index) == forms_.size()) {
      first_expert_ = expert;
      forms_.push_back(reader.form());
    }
    if (reader.form() == forms_[index]) return absl::OkStatus();
    return InvalidArgument("tensor ", part.name, " is multiplied as ", reader.form(), ", and that of expert ",
                           first_expert_, " as ", forms_[index], "; the experts of a layer must have one type");
  }

 private:
  int first_expert_ = 0;
  std::vector<std::string> forms_;
};

// Loads one expert after another, so that at most one is in memory twice.
absl::Status LoadExperts(const ModelConfig& config, int index, WeightReader* reader, LayerWeights* layer) {
  const int num_experts = config.moe.router.num_experts;
  QUIRE_RETURN_IF_ERROR(reader->Float32Matrix(RouterParts(config, index), config.hidden_size, &layer->router));
  if (config.moe.has_choice_bias()) {
    const std::string bias = absl::StrCat(kLayersPrefix, index, ".", config.moe.names->choice_bias);
    QUIRE_RETURN_IF_ERROR(reader->Vector({{bias, num_experts}}, &layer->choice_bias));
  }
  if (config.moe.names->router_bias != nullptr) {
    const std::string bias = absl::StrCat(kLayersPrefix, index, ".", config.moe.names->router_bias);
    QUIRE_RETURN_IF_ERROR(reader->Vector({{bias, num_experts}}, &layer->router_bias));
  }
  const IndexRange own = OwnExperts(config);
  ExpertForms forms;
  reader->BeginOwn();
  for (int expert = 0; expert < num_experts; ++expert) {
    if (!own.contains(expert)) {
      reader->LeaveToOthers(ExpertPrefix(config, index, expert));
      layer->experts.push_back({});
      continue;
    }
    const ExpertStacks stacks = StacksOfExpert(config, index, expert);
    std::unique_ptr<PackedMatrix> gate_up, down;
    QUIRE_RETURN_IF_ERROR(reader->GatedMatrix(stacks.gate_up[0], stacks.gate_up[1], config.hidden_size, &gate_up));
    QUIRE_RETURN_IF_ERROR(forms.Check(*reader, expert, /*index=*/0, stacks.gate_up[0]));
    QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(stacks.down, config.moe.width, &down));
    QUIRE_RETURN_IF_ERROR(forms.Check(*reader, expert, /*index=*/1, stacks.down[0]));
    Expert& loaded = layer->experts.emplace_back();
    loaded.gate_up = gate_up.get();
    loaded.down = down.get();
    if (config.moe.has_biases()) {
      const ExpertStacks biases = BiasesOfExpert(config, index, expert);
      BackendBuffer gate_up_bias, down_bias;
      QUIRE_RETURN_IF_ERROR(reader->Vector(biases.gate_up, &gate_up_bias));
      QUIRE_RETURN_IF_ERROR(reader->Vector(biases.down, &down_bias));
      loaded.gate_up_bias = gate_up_bias.floats();
      loaded.down_bias = down_bias.floats();
      layer->expert_biases.push_back(std::move(gate_up_bias));
      layer->expert_biases.push_back(std::move(down_bias));
    }
    layer->expert_matrices.push_back(std::move(gate_up));
    layer->expert_matrices.push_back(std::move(down));
  }
  reader->EndOwn(config);
  return absl::OkStatus();
}

absl::Status LoadLayer(const ModelConfig& config, int index, WeightReader* reader, LayerWeights* layer) {
  const std::string prefix = absl::StrCat(kLayersPrefix, index, ".");
  const LayerStacks stacks = StacksOfLayer(config, index);
  const std::pair<const char*, BackendBuffer*> norms[] = {
      {config.names.input_norm, &layer->input_norm},
      {config.names.attention_output_norm, &layer->attention_output_norm},
      {config.names.mlp_norm, &layer->mlp_norm},
      {config.names.mlp_output_norm, &layer->mlp_output_norm},
  };
  for (const auto& [name, weights] : norms) {
    if (name == nullptr) continue;
    QUIRE_RETURN_IF_ERROR(reader->Norm(absl::StrCat(prefix, name, ".weight"), config.hidden_size, weights));
  }
  QUIRE_RETURN_IF_ERROR(LoadAttention(config, prefix + "self_attn.", stacks, reader, layer));
  if (config.layers[index].is_moe) QUIRE_RETURN_IF_ERROR(LoadExperts(config, index, reader, layer));
  if (stacks.down.empty()) return absl::OkStatus();
  return LoadMlp(config, prefix + "mlp.", stacks, reader, layer);
}

absl::Status LoadRotations(const ModelConfig& config, WeightReader* reader, ModelWeights* weights) {
  constexpr const char* kWhat = "rotary frequencies";
  const int rotary_dim = RotaryDim(config.rope, config.head_dim);
  QUIRE_RETURN_IF_ERROR(reader->Copy(InverseFrequencies(config.rope, rotary_dim), kWhat, &weights->inv_freq));
  if (config.window_rope.has_value()) {
    QUIRE_RETURN_IF_ERROR(
        reader->Copy(InverseFrequencies(*config.window_rope, config.head_dim), kWhat, &weights->window_inv_freq));
  }
  return reader->Copy(std::vector<float>(config.head_dim / 2), kWhat, &weights->no_inv_freq);
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint, Backend* backend,
                                         LoadProgress* progress, const WeightRounding& rounding) {
  QUIRE_ASSIGN_OR_RETURN(
      const CheckpointQuantization format,
      ReadAs(config.quantization, rounding.layers, backend->MultipliesQuantized(), backend->MultipliesFp8()));
  const Quantization stored = format.width();
  if (const std::string extra = ExtraLayers(config, checkpoint); !extra.empty()) {
    QUIRE_LOG(kWarning) << extra;
  }
  if (const std::string skipped = SkippedTensors(checkpoint); !skipped.empty()) {
    QUIRE_LOG(kInfo) << skipped;
  }
  WeightReader reader(config, format, checkpoint, backend, progress, rounding);
  ModelWeights weights;
  weights.rounding = rounding;
  if (stored != Quantization::kNone) weights.rounding.layers = stored;
  const bool is_quantized = weights.rounding.layers != Quantization::kNone || rounding.output;
  if (is_quantized && !backend->MultipliesQuantized()) {
    return absl::FailedPreconditionError(
        absl::StrCat(backend->Description(), " cannot multiply quantized weights; a CPU can"));
  }
  if (config.denies_own_output) {
    QUIRE_LOG(kWarning) << "config.json says that the output matrix is the embedding (tie_word_embeddings), but "
                        << kOutputName << " and " << kEmbeddingName
                        << " differ; both are used, as in Transformers 5; set tie_word_embeddings to false";
  }
  const char* const embedding = EmbeddingName(config, checkpoint);
  QUIRE_RETURN_IF_ERROR(reader.Matrix({{embedding, config.vocab_size}}, config.hidden_size, &weights.embedding));
  for (int i = 0; i < config.num_layers; ++i) {
    weights.layers.emplace_back();
    QUIRE_RETURN_IF_ERROR(LoadLayer(config, i, &reader, &weights.layers.back()));
  }
  QUIRE_RETURN_IF_ERROR(reader.Norm("model.norm.weight", config.hidden_size, &weights.final_norm));
  const MatrixPart output = OutputPart(config, config.tie_word_embeddings ? embedding : kOutputName);
  if (rounding.output) {
    QUIRE_RETURN_IF_ERROR(reader.Int8Matrix(output, config.hidden_size, &weights.lm_head));
  } else if (!config.tie_word_embeddings || config.shard.size > 1) {
    QUIRE_RETURN_IF_ERROR(reader.Matrix({output}, config.hidden_size, &weights.lm_head));
  }
  QUIRE_RETURN_IF_ERROR(LoadRotations(config, &reader, &weights));
  weights.rounding.keeps_blocks = reader.has_blocks();
  QUIRE_RETURN_IF_ERROR(reader.CheckUnused(config));
  weights.digests = reader.digests();
  if (config.shard.size == 1) weights.fingerprint = weights.digests.fingerprint();
  return weights;
}

}  // namespace quire
