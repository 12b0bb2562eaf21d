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
// that `model.safetensors.index.json` names. Tensors of a GGUF file get the names of Hugging Face. Move-only.
class Checkpoint {
 public:
  // Opens the files and checks them: shards must be plain file names inside the directory, every tensor must be in the
  // shard that the index names, and no tensor may occur in two shards.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  // Returns null when there is no such tensor. The tensor is valid while this object, or the one it was moved to,
  // exists.
  const Tensor* Find(const std::string& name) const;

  int num_files() const { return static_cast<int>(files_.size() + gguf_files_.size()); }
  // The size of all tensors.
  int64_t num_bytes() const;

  // Returns the names in ascending order.
  std::vector<std::string> Names() const;

 private:
  Checkpoint() = default;

  absl::Status AddGguf(const std::string& path);
  absl::Status AddFile(const std::string& directory, const std::string& name);
  // `shard_of` maps tensor names to file names.
  absl::Status AddShards(const std::string& directory, const std::map<std::string, std::string>& shard_of);

  std::vector<SafetensorsFile> files_;
  std::vector<GgufFile> gguf_files_;                  // One or none.
  absl::flat_hash_map<std::string, Tensor> tensors_;  // The views point into the files.
};

// Returns the names of the files of weights in a model directory: `model.safetensors` if it exists, otherwise the
// shards that the index names, whether or not they exist. Returns NOT_FOUND when there is neither.
absl::StatusOr<std::set<std::string>> WeightFileNames(const std::string& directory);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CHECKPOINT_H_
