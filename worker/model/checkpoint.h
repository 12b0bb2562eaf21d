// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_CHECKPOINT_H_
#define QUIRE_WORKER_MODEL_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "worker/model/gguf.h"
#include "worker/model/safetensors.h"

namespace quire {

// All tensors of a model directory or of a GGUF file. A directory has them in `model.safetensors`, or in the shards
// that `model.safetensors.index.json` names. Tensors of a GGUF file get the names of Hugging Face. Of a text model
// inside of a larger model, there are only its tensors, under the names that they have in a text model alone
// (model_wrapper.h). A tensor that has the matrices of all experts of a layer becomes one for each matrix
// (expert_stacks.h). Move-only.
class Checkpoint {
 public:
  // Opens the files and checks them: shards must be plain file names inside the directory, every tensor must be in the
  // shard that the index names, and no tensor may occur in two shards.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  // Returns null when there is no such tensor. The tensor is valid while this object, or the one it was moved to,
  // exists.
  const Tensor* Find(const std::string& name) const;

  // Returns whether the files are of a base model, without output matrix, whose names do not begin with "model.". Find
  // and Names add this prefix.
  bool has_base_names() const { return has_base_names_; }

  int num_files() const;
  // The size of all tensors.
  int64_t num_bytes() const;
  // The tensors that are not of the text model: their number, by the part of the model to which they belong.
  const std::map<std::string, int>& skipped() const { return skipped_; }

  // Returns the names in ascending order.
  std::vector<std::string> Names() const;

 private:
  Checkpoint() = default;

  // Puts "model." before the names of a base model.
  void CompleteNames();
  absl::Status AddGguf(const std::string& path);
  absl::Status AddFile(const std::string& directory, const std::string& name);
  // `shard_of` maps tensor names to file names.
  absl::Status AddShards(const std::string& directory, const std::map<std::string, std::string>& shard_of);

  std::vector<SafetensorsFile> files_;
  std::vector<GgufFile> gguf_files_;                  // One or none.
  absl::flat_hash_map<std::string, Tensor> tensors_;  // The views point into the files.
  std::map<std::string, int> skipped_;
  bool has_base_names_ = false;
};

// Returns the names of the files of weights in a model directory: `model.safetensors` if it exists, otherwise the
// shards that the index names, whether or not they exist. Returns NOT_FOUND when there is neither.
absl::StatusOr<std::set<std::string>> WeightFileNames(const std::string& directory);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CHECKPOINT_H_
