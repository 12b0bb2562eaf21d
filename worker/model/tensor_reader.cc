#include "worker/model/tensor_reader.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/model/mapped_file.h"
#include "worker/model/tensor_values.h"

namespace quire {

bool TensorReader::Has(const std::string& name, const std::string& dtype) const {
  const Tensor* tensor = checkpoint_.Find(name);
  return tensor != nullptr && tensor->dtype == dtype;
}

absl::StatusOr<const Tensor*> TensorReader::Take(const std::string& name, const std::vector<int64_t>& shape) {
  QUIRE_ASSIGN_OR_RETURN(
      const Tensor* tensor,
      Find(name, absl::StrCat("[", absl::StrJoin(shape, ", "), "] of F32, BF16 or F16"),
           [&](const Tensor& found) { return found.shape == shape && (WeightType(found) || IsGgufQuantized(found)); }));
  Count(*tensor);
  if (NeedsConversion(*tensor)) {
    const std::string_view stored = tensor->bytes;
    tensor = &converted_.insert_or_assign(name, ConvertGgufTensor(*tensor)).first->second.tensor;
    ReleasePages(stored);
  }
  // One such weight would make every step fail, and look like a bad request.
  if (const std::optional<size_t> index = FirstNotFinite(tensor->bytes, *WeightType(*tensor)); index.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is ", Describe(*tensor), ", and its element ",
                                                   *index, " is infinite or not a number"));
  }
  return tensor;
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
  fingerprint_.Add(absl::StrCat(tensor.name, " ", Describe(tensor)));
  fingerprint_.Add(tensor.bytes);
  progress_->Add(static_cast<int64_t>(tensor.bytes.size()));
}

absl::StatusOr<const Tensor*> TensorReader::TakeIntegers(const std::string& name, const std::string& dtype,
                                                         const std::vector<int64_t>& shape) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor,
                         Find(name, absl::StrCat("[", absl::StrJoin(shape, ", "), "] of ", dtype),
                              [&](const Tensor& found) { return found.shape == shape && found.dtype == dtype; }));
  Count(*tensor);
  return tensor;
}

void TensorReader::Release(const std::string& name) {
  if (converted_.erase(name) == 0) ReleasePages(checkpoint_.Find(name)->bytes);
}

void TensorReader::ReportUnused() const {
  int num_unused = 0;
  std::string first;
  for (const std::string& name : checkpoint_.Names()) {
    // Old checkpoints contain the rotary table. A checkpoint with a tied output matrix may contain that matrix as well.
    if (used_.contains(name) || absl::EndsWith(name, "rotary_emb.inv_freq") || name == "lm_head.weight") continue;
    if (num_unused++ == 0) first = name;
  }
  if (num_unused == 0) return;
  QUIRE_LOG(kWarning) << "ignored " << num_unused << " unknown tensors, the first is " << first;
}

}  // namespace quire
