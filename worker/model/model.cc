#include "worker/model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/model/checkpoint.h"
#include "worker/model/mapped_file.h"

namespace quire {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxTokenizerBytes = 128 << 20;

// Empty when there is no such file.
absl::StatusOr<std::string> ReadOptionalFile(const std::string& path, size_t max_bytes) {
  absl::StatusOr<std::string> contents = ReadSmallFile(path, max_bytes);
  if (absl::IsNotFound(contents.status())) return std::string();
  return contents;
}

absl::StatusOr<ModelConfig> ReadConfig(const std::string& directory) {
  QUIRE_ASSIGN_OR_RETURN(const std::string config, ReadSmallFile(directory + "/config.json", kMaxConfigBytes));
  QUIRE_ASSIGN_OR_RETURN(const std::string generation,
                         ReadOptionalFile(directory + "/generation_config.json", kMaxConfigBytes));
  return ParseModelConfig(config, generation);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& directory, Backend* backend) {
  auto model = std::make_unique<Model>();
  QUIRE_ASSIGN_OR_RETURN(model->config, ReadConfig(directory));
  QUIRE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(directory));
  QUIRE_ASSIGN_OR_RETURN(model->weights, LoadWeights(model->config, checkpoint, backend));
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    QUIRE_ASSIGN_OR_RETURN(std::string contents,
                           ReadOptionalFile(absl::StrCat(directory, "/", name), kMaxTokenizerBytes));
    if (!contents.empty()) model->tokenizer_files.push_back({name, std::move(contents)});
  }
  QUIRE_LOG(kInfo) << "loaded " << directory << ": " << Summary(model->config) << ", weights "
                   << model->weights.fingerprint;
  return model;
}

}  // namespace quire
