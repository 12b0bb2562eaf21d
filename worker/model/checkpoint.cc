// SPDX-License-Identifier: Apache-2.0

#include "worker/model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/model/directory_hint.h"
#include "worker/model/expert_stacks.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/json_reader.h"
#include "worker/model/model_wrapper.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxShards = 4096;

bool IsPlainFileName(const std::string& name) {
  return absl::EndsWith(name, ".safetensors") && name.find_first_of(std::string("/\\\0", 3)) == std::string::npos &&
         name.front() != '.';
}

std::string IndexPath(const std::string& directory) {
  return absl::StrCat(directory, "/", kIndexFile);
}

absl::Status BadIndex(const std::string& directory, const std::string& trouble) {
  return absl::InvalidArgumentError(absl::StrCat(IndexPath(directory), ": ", trouble));
}

// Reads the index: a map from the names of tensors to the names of shards.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& directory) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(IndexPath(directory), kMaxIndexBytes));
  QUIRE_ASSIGN_OR_RETURN(const json root, ParseModelJson(text, IndexPath(directory)));
  const auto found = root.find("weight_map");
  if (!root.is_object() || found == root.end() || !found->is_object()) {
    return BadIndex(directory, "weight_map must be an object");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : found->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get<std::string>())) {
      return BadIndex(directory, absl::StrCat("weight_map.", Shown(json(tensor)), " is ", Shown(shard),
                                              ", must be the name of a .safetensors file in the same directory"));
    }
    shards[tensor] = shard.get<std::string>();
  }
  return shards;
}

absl::Status NoWeights(const std::string& directory) {
  return absl::NotFoundError(
      absl::StrCat(directory, " has neither ", kSingleFile, " nor ", kIndexFile, DirectoryHint(directory)));
}

}  // namespace

absl::StatusOr<std::set<std::string>> WeightFileNames(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(directory, "/", kSingleFile), error))
    return std::set<std::string>{kSingleFile};
  const auto shard_of = ReadIndex(directory);
  if (absl::IsNotFound(shard_of.status())) return NoWeights(directory);
  QUIRE_RETURN_IF_ERROR(shard_of.status());
  std::set<std::string> names;
  for (const auto& [tensor, shard] : *shard_of) names.insert(shard);
  return names;
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path) {
  Checkpoint checkpoint;
  if (IsGgufPath(path)) {
    QUIRE_RETURN_IF_ERROR(checkpoint.AddGguf(path));
    return checkpoint;
  }
  const std::string& directory = path;
  const absl::Status single = checkpoint.AddFile(directory, kSingleFile);
  if (single.ok()) {
    checkpoint.CompleteNames();
    return checkpoint;
  }
  if (!absl::IsNotFound(single)) return single;
  const auto shard_of = ReadIndex(directory);
  if (absl::IsNotFound(shard_of.status())) return NoWeights(directory);
  QUIRE_RETURN_IF_ERROR(shard_of.status());
  QUIRE_RETURN_IF_ERROR(checkpoint.AddShards(directory, *shard_of));
  checkpoint.CompleteNames();
  return checkpoint;
}

void Checkpoint::CompleteNames() {
  const std::string prefix = "model.";
  const std::string base_name = std::string(kEmbeddingName).substr(prefix.size());
  has_base_names_ = !tensors_.contains(kEmbeddingName) && tensors_.contains(base_name);
  if (!has_base_names_) return;
  absl::flat_hash_map<std::string, Tensor> tensors;
  for (auto& [name, tensor] : tensors_) {
    if (name != kOutputName) tensor.name = absl::StrCat(prefix, name);
    std::string complete = tensor.name;
    tensors.emplace(std::move(complete), std::move(tensor));
  }
  tensors_ = std::move(tensors);
}

absl::Status Checkpoint::AddGguf(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  absl::StatusOr<std::vector<Tensor>> tensors = GgufTensors(file.contents());
  if (!tensors.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensors.status().message()));
  }
  for (Tensor& tensor : *tensors) {
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  gguf_files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::AddFile(const std::string& directory, const std::string& name) {
  const std::string path = absl::StrCat(directory, "/", name);
  QUIRE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const Tensor& stored : file.tensors()) {
    std::optional<std::string> text_name = TextTensorName(stored.name);
    if (!text_name.has_value()) {
      ++skipped_[SkippedPart(stored.name)];
      continue;
    }
    Tensor tensor = stored;
    tensor.name = *std::move(text_name);
    std::vector<Tensor> parts = MatricesOfExperts(tensor);
    if (parts.empty()) parts.push_back(std::move(tensor));
    for (Tensor& part : parts) {
      std::string part_name = part.name;
      if (tensors_.emplace(std::move(part_name), std::move(part)).second) continue;
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Shown(json(stored.name)),
                                                     " is there twice: in another shard, or with another prefix"));
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::AddShards(const std::string& directory, const std::map<std::string, std::string>& shard_of) {
  std::map<std::string, std::vector<std::string>> tensors_of;
  for (const auto& [tensor, shard] : shard_of) tensors_of[shard].push_back(tensor);
  if (tensors_of.size() > kMaxShards) {
    return BadIndex(directory, absl::StrCat("names ", tensors_of.size(), " shards, at most ", kMaxShards));
  }
  for (const auto& [shard, tensors] : tensors_of) {
    QUIRE_RETURN_IF_ERROR(AddFile(directory, shard));
    absl::flat_hash_set<std::string_view> present;
    for (const Tensor& tensor : files_.back().tensors()) present.insert(tensor.name);
    for (const std::string& tensor : tensors) {
      if (present.contains(tensor)) continue;
      return BadIndex(directory,
                      absl::StrCat("weight_map puts ", Shown(json(tensor)), " into ", shard, ", which lacks it"));
    }
  }
  return absl::OkStatus();
}

const Tensor* Checkpoint::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

int Checkpoint::num_files() const {
  int count = static_cast<int>(files_.size());
  for (const GgufFile& file : gguf_files_) count += file.num_files();
  return count;
}

int64_t Checkpoint::num_bytes() const {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.own_bytes();
  return sum;
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace quire
