#ifndef QUIRE_WORKER_MODEL_CHECKPOINT_H_
#define QUIRE_WORKER_MODEL_CHECKPOINT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "worker/model/safetensors.h"

namespace quire {

// All tensors of a model directory: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
// Move-only, through its files.
class Checkpoint {
 public:
  // Shard names must be plain file names of the directory, each tensor must be where the index says, and no name may
  // occur in two shards.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // Null when there is no such tensor. Valid while this object (or the one it was moved to) lives.
  const Tensor* Find(const std::string& name) const;

  // Ascending.
  std::vector<std::string> Names() const;

 private:
  Checkpoint() = default;

  absl::Status AddFile(const std::string& directory, const std::string& name);
  // `shard_of` maps tensor names to file names.
  absl::Status AddShards(const std::string& directory, const std::map<std::string, std::string>& shard_of);

  std::vector<SafetensorsFile> files_;
  absl::flat_hash_map<std::string, Tensor> tensors_;  // The views point into files_.
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CHECKPOINT_H_
