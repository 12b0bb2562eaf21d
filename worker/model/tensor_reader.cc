// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tensor_reader.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status.h"
#include "worker/model/layer_check.h"
#include "worker/model/mapped_file.h"
#include "worker/model/mxfp4.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

// Returns the index of the first number of the part that is not finite.
std::optional<size_t> FirstNotFiniteOf(const Tensor& tensor, const TensorPart& part) {
  const size_t row_cols = tensor.shape.size() < 2 ? 1 : static_cast<size_t>(tensor.shape[1]);
  const size_t element = SizeOf(*WeightType(tensor));
  const bool has_whole_rows = part.cols == 0 || static_cast<size_t>(part.cols) == row_cols;
  const size_t num_runs = has_whole_rows ? 1 : part.rows, run = has_whole_rows ? part.rows * row_cols : part.cols;
  for (size_t i = 0; i < num_runs; ++i) {
    const size_t first = (part.first_row + i) * row_cols + part.first_col;
    const auto found = FirstNotFinite(tensor.bytes.substr(first * element, run * element), *WeightType(tensor));
    if (found.has_value()) return first + *found;
  }
  return std::nullopt;
}

// `stored` describes the tensor in the file, which may have another type than its converted copy.
absl::Status CheckConverted(const Tensor& tensor, const std::string& stored, const std::optional<TensorPart>& part) {
  const std::optional<size_t> index =
      part.has_value() ? FirstNotFiniteOf(tensor, *part) : FirstNotFinite(tensor.bytes, *WeightType(tensor));
  if (!index.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " is ", stored, ", and its element ", *index,
                                                 " is infinite or not a number"));
}

// GGUF files have a type of the same name, whose numbers and scales are in one tensor.
bool IsMxfp4(const Tensor& tensor) {
  return tensor.dtype == kMxfp4Type && tensor.places.has_value();
}

// Returns which of `size` ranks digests a tensor that all of them take.
int DigestingRank(const std::string& name, int size) {
  Fingerprint digest;
  digest.Add(name);
  return static_cast<int>(digest.Low() % static_cast<uint64_t>(size));
}

}  // namespace

absl::StatusOr<const Tensor*> TensorReader::Take(const std::string& name, const std::vector<int64_t>& shape,
                                                 std::optional<TensorPart> part) {
  // Of a tensor of several matrices, the first one may still be in use.
  const auto kept = converted_.find(name);
  if (kept != converted_.end() && kept->second.tensor.shape == shape) return &kept->second.tensor;
  const auto is_fp8 = [&](const Tensor& tensor) {
    return fp8_.has_value() && tensor.dtype == kFp8Type && tensor.shape.size() == 2 && !tensor.places.has_value();
  };
  std::string expected = absl::StrCat("[", absl::StrJoin(shape, ", "), "] of F32, BF16 or F16");
  if (fp8_.has_value() && shape.size() == 2) absl::StrAppend(&expected, " or ", kFp8Type);
  const Tensor* const candidate = checkpoint_.Find(name);
  if (!fp8_.has_value() && candidate != nullptr && candidate->dtype == kFp8Type) {
    absl::StrAppend(&expected, "; to read ", kFp8Type, ", config.json needs a quantization_config that names FP8");
  }
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, Find(name, expected, [&](const Tensor& found) {
                           return found.shape == shape &&
                                  (WeightType(found) || IsGgufQuantized(found) || is_fp8(found) || IsMxfp4(found));
                         }));
  Count(*tensor);
  const std::string in_file = Describe(*tensor);
  if (IsGgufQuantized(*tensor) || is_fp8(*tensor) || tensor->places.has_value()) {
    const std::string_view stored = tensor->bytes;
    OwnedTensor converted;
    if (IsMxfp4(*tensor)) {
      QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, TakeMxfp4Scales(*tensor));
      QUIRE_ASSIGN_OR_RETURN(converted, DequantizeMxfp4(*tensor, *scales));
    } else if (tensor->places.has_value()) {
      converted = Gathered(*tensor);
    } else if (is_fp8(*tensor)) {
      QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, TakeFp8Scales(*tensor));
      QUIRE_ASSIGN_OR_RETURN(converted, DequantizeFp8(*tensor, *scales, *fp8_));
    } else {
      converted = DequantizeGgufTensor(*tensor);
    }
    tensor = &converted_.emplace(name, std::move(converted)).first->second.tensor;
    ReleasePages(stored);
  }
  QUIRE_RETURN_IF_ERROR(CheckConverted(*tensor, in_file, part));
  return tensor;
}

absl::Status TensorReader::Keep(OwnedTensor made) {
  QUIRE_RETURN_IF_ERROR(CheckFinite(made.tensor));
  const std::string name = made.tensor.name;
  converted_.emplace(name, std::move(made));
  return absl::OkStatus();
}

absl::Status TensorReader::CheckFinite(const Tensor& tensor) {
  return CheckConverted(tensor, Describe(tensor), /*part=*/std::nullopt);
}

// Both names of the scales are in use, and both are factors.
absl::StatusOr<const Tensor*> TensorReader::TakeFp8Scales(const Tensor& matrix) {
  const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
  const std::string plain = matrix.name + "_scale", inverse = plain + "_inv";
  bool is_inverse = Has(inverse);
  if (!is_inverse && !Has(plain)) {  // The other matrices tell which one is missing.
    const std::vector<std::string> names = checkpoint_.Names();
    is_inverse = std::ranges::any_of(names, [](const auto& name) { return absl::EndsWith(name, ".weight_scale_inv"); });
  }
  QUIRE_ASSIGN_OR_RETURN(
      const Tensor* scales,
      Find(is_inverse ? inverse : plain, ExpectedFp8Scales(rows, cols, *fp8_),
           [&](const Tensor& found) { return WeightType(found) && IsFp8ScaleShape(found.shape, rows, cols, *fp8_); }));
  Count(*scales);
  return scales;
}

absl::StatusOr<const Tensor*> TensorReader::TakeMxfp4Scales(const Tensor& matrix) {
  const std::vector<int64_t> shape = {matrix.shape[0], matrix.shape[1] / kMxfp4Group};
  QUIRE_ASSIGN_OR_RETURN(
      const Tensor* scales,
      Find(absl::StrCat(matrix.name, kMxfp4ScalesSuffix), absl::StrCat("[", absl::StrJoin(shape, ", "), "] of U8"),
           [&](const Tensor& found) { return found.shape == shape && found.dtype == "U8"; }));
  Count(*scales);
  return scales;
}

absl::StatusOr<QuantizedMatrix> TensorReader::TakeFp8(const std::string& name, const std::vector<int64_t>& shape) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, TakeOfType(name, kFp8Type, shape));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, TakeFp8Scales(*tensor));
  return KeepFp8(*tensor, *scales, *fp8_);
}

absl::StatusOr<const Tensor*> TensorReader::Find(const std::string& name, const std::string& expected,
                                                 absl::FunctionRef<bool(const Tensor&)> is_expected) const {
  const Tensor* tensor = checkpoint_.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing, expected ", expected));
  }
  if (is_expected(*tensor)) return tensor;
  return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is ", Describe(*tensor), ", expected ", expected));
}

void TensorReader::Count(const Tensor& tensor) {
  if (!used_.insert(tensor.name).second) return;  // A tensor of several matrices.
  if (num_ranks_ > 1 && DigestingRank(tensor.name, num_ranks_) != rank_) {
    digests_.Expect(tensor.name);
  } else {
    digests_.Add(tensor.name, Describe(tensor), tensor.bytes);
  }
  progress_->Add(tensor.own_bytes());
}

void TensorReader::ShareDigests(int rank, int size) {
  rank_ = rank;
  num_ranks_ = size;
}

bool TensorReader::IsLeftToOthers(const std::string& name) const {
  const auto after = left_.upper_bound(name);
  return after != left_.begin() && absl::StartsWith(name, *std::prev(after));
}

absl::StatusOr<const Tensor*> TensorReader::TakeOfType(const std::string& name, const std::string& dtype,
                                                       const std::vector<int64_t>& shape) {
  QUIRE_ASSIGN_OR_RETURN(
      const Tensor* tensor,
      Find(name, absl::StrCat("[", absl::StrJoin(shape, ", "), "] of ", dtype), [&](const Tensor& found) {
        return found.shape == shape && found.dtype == dtype && !found.places.has_value();
      }));
  Count(*tensor);
  return tensor;
}

absl::StatusOr<const Tensor*> TensorReader::TakeBlocks(const std::string& name, const std::string& dtype,
                                                       const std::vector<int64_t>& shape) {
  const Tensor* const found = checkpoint_.Find(name);
  if (found == nullptr || !IsMxfp4(*found) || found->shape != shape) return TakeOfType(name, dtype, shape);
  Count(*found);
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, TakeMxfp4Scales(*found));
  const Tensor& result = converted_.emplace(name, Mxfp4InBlocks(*found, *scales)).first->second.tensor;
  ReleasePages(found->bytes);
  return &result;
}

void TensorReader::Release(const std::string& name) {
  if (converted_.erase(name) > 0) return;
  if (const Tensor* tensor = checkpoint_.Find(name); tensor != nullptr) ReleasePages(tensor->bytes);
}

absl::Status TensorReader::CheckNoEffect(const Tensor& tensor) const {
  const size_t dot = tensor.name.rfind('.');
  if (dot == std::string::npos) return absl::OkStatus();
  const std::string base = tensor.name.substr(0, dot + 1), part = tensor.name.substr(dot + 1);
  const bool is_of_used_matrix =
      used_.contains(base + "weight") || used_.contains(base + "weight_packed") || used_.contains(base + "qweight");
  // The parts named here are scales for K and V of FP8.
  if (!is_of_used_matrix || part == "k_scale" || part == "v_scale" || part == "output_scale") return absl::OkStatus();
  const bool is_zero_point = absl::StrContains(part, "zero"), is_scale = absl::StrContains(part, "scale");
  if (!is_zero_point && !is_scale && !absl::StrContains(part, "g_idx")) return absl::OkStatus();
  if (is_zero_point && IsAllZero(tensor.bytes)) return absl::OkStatus();
  if (is_scale && WeightType(tensor) && IsAllOne(tensor.bytes, *WeightType(tensor))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", tensor.name, " is ", Describe(tensor),
      ", and with quantization_config of config.json nothing uses it; beside a matrix of this kind it must be absent",
      is_zero_point ? " or all 0"
      : is_scale    ? " or all 1"
                    : ""));
}

absl::Status TensorReader::CheckUnused(const ModelConfig& config) const {
  uint64_t num_unused = 0;
  std::string first;
  for (const std::string& name : checkpoint_.Names()) {
    // Old checkpoints contain the rotary table. A checkpoint with a tied output matrix may contain that matrix as well.
    if (used_.contains(name) || absl::EndsWith(name, "rotary_emb.inv_freq") || name == kOutputName) continue;
    if (IsOfExtraLayer(config, name) || IsLeftToOthers(name)) continue;
    // A product that rounds its input to FP8 computes the scales, and K and V are never FP8. So these have no use.
    const bool is_fp8_scale = absl::EndsWith(name, ".input_scale") || absl::EndsWith(name, ".activation_scale") ||
                              absl::EndsWith(name, ".k_scale") || absl::EndsWith(name, ".v_scale");
    if (fp8_.has_value() && is_fp8_scale) continue;
    QUIRE_RETURN_IF_ERROR(CheckNoEffect(*checkpoint_.Find(name)));
    QUIRE_RETURN_IF_ERROR(CheckMayBeLeftOut(config, *checkpoint_.Find(name)));
    if (num_unused++ == 0) first = name;
  }
  if (num_unused == 0) return absl::OkStatus();
  QUIRE_LOG(kWarning) << "ignored " << Counted(num_unused, "unknown tensor") << ", the first is " << first;
  return absl::OkStatus();
}

}  // namespace quire
