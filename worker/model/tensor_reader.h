// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_TENSOR_READER_H_
#define QUIRE_WORKER_MODEL_TENSOR_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/fingerprint.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/fp8.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/load_progress.h"
#include "worker/model/tensor.h"

namespace quire {

// A part of a tensor of one or two dimensions. A tensor of one dimension has one column.
struct TensorPart {
  int64_t first_row;
  int64_t rows;
  int64_t first_col = 0;
  int64_t cols = 0;  // 0: whole rows.
};

// Reads tensors of a checkpoint by name and checks them. It remembers which tensors were used, and computes the
// fingerprint of all that were used. Errors are one line with the name of the tensor, what it is and what is expected.
// The checkpoint and the progress must outlive it.
class TensorReader {
 public:
  // With `fp8`, matrices may be numbers of FP8 with scales. `text` is what the fingerprint covers besides tensors.
  TensorReader(const Checkpoint& checkpoint, LoadProgress* progress, std::optional<Fp8Block> fp8 = std::nullopt,
               std::string text = "")
      : checkpoint_(checkpoint), progress_(progress), fp8_(fp8), digests_(std::move(text)) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  bool Has(const std::string& name) const { return checkpoint_.Find(name) != nullptr; }

  // Returns the tensor if it has this shape and finite floating-point numbers, and notes that it is used. If the file
  // stores it in another form (FP8, MXFP4, a quantized type of GGUF, or in another order), the result is a converted
  // copy, which is valid until Release or the end of this object. With `part`, only the numbers of this part need be
  // finite, and no others are read unless the tensor is converted.
  absl::StatusOr<const Tensor*> Take(const std::string& name, const std::vector<int64_t>& shape,
                                     std::optional<TensorPart> part = std::nullopt);
  // Keeps a tensor that was made of others, so that Take returns it under its name until Release. Returns an error if a
  // number is infinite or not a number.
  absl::Status Keep(OwnedTensor made);
  // Returns whether there is a converted copy under this name. A tensor that needs no conversion does not count.
  bool Keeps(const std::string& name) const { return converted_.contains(name); }
  // Returns the tensor if it has this type and shape and is row-major, and notes that it is used.
  absl::StatusOr<const Tensor*> TakeOfType(const std::string& name, const std::string& dtype,
                                           const std::vector<int64_t>& shape);
  // Returns a matrix in blocks (kernels/blocks.h) of this type in the form of GGUF files, and notes that it is used.
  // One that is stored in another form is a copy, valid until Release or the end of this object.
  absl::StatusOr<const Tensor*> TakeBlocks(const std::string& name, const std::string& dtype,
                                           const std::vector<int64_t>& shape);
  // Returns a matrix of FP8 as it is stored, and notes that it and its scales are used. REQUIRES: this object has
  // blocks of FP8, and CanKeepFp8 of them.
  absl::StatusOr<QuantizedMatrix> TakeFp8(const std::string& name, const std::vector<int64_t>& shape);
  // Returns the tensor if it is what is expected.
  absl::StatusOr<const Tensor*> Find(const std::string& name, const std::string& expected,
                                     absl::FunctionRef<bool(const Tensor&)> is_expected) const;

  // Gives the pages of a tensor back to the system, or frees its copy. They are read from the file again when they are
  // needed.
  void Release(const std::string& name);

  // Logs the number of tensors that were not used and are not of layers beyond the config, which ExtraLayers
  // (layer_check.h) reports. Returns an error if one of them would change the numbers of a matrix that was used: zero
  // points, scales or an order of columns, but not zero points of 0 or scales of 1. The same for CheckMayBeLeftOut.
  absl::Status CheckUnused(const ModelConfig& config) const;

  // From now on, this rank of `size` digests its share of the tensors, because the others take the same. With a size of
  // 1, it digests all.
  void ShareDigests(int rank, int size);
  // Notes that another rank takes the tensors whose names begin like this.
  void LeaveToOthers(const std::string& prefix) { left_.insert(prefix); }
  const TensorDigests& digests() const { return digests_; }

 private:
  // Notes that the tensor is used.
  void Count(const Tensor& tensor);
  bool IsLeftToOthers(const std::string& name) const;
  absl::StatusOr<const Tensor*> TakeFp8Scales(const Tensor& matrix);
  absl::StatusOr<const Tensor*> TakeMxfp4Scales(const Tensor& matrix);
  // One weight that is not finite would make every step fail, and look like a bad request.
  static absl::Status CheckFinite(const Tensor& tensor);
  // Returns an error if the tensor, which was not used, would change the numbers of a matrix that was.
  absl::Status CheckNoEffect(const Tensor& tensor) const;

  const Checkpoint& checkpoint_;
  LoadProgress* const progress_;
  const std::optional<Fp8Block> fp8_;
  absl::flat_hash_set<std::string> used_;
  std::map<std::string, OwnedTensor> converted_;
  int rank_ = 0;
  int num_ranks_ = 1;           // Ranks that share the digests.
  std::set<std::string> left_;  // Beginnings of names. None is the beginning of another.
  TensorDigests digests_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TENSOR_READER_H_
