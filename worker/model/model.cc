// SPDX-License-Identifier: Apache-2.0

#include "worker/model/model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "worker/model/checkpoint.h"
#include "worker/model/directory_hint.h"
#include "worker/model/fp8.h"
#include "worker/model/gguf.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_names.h"
#include "worker/model/gguf_sampling.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/model/layer_check.h"
#include "worker/model/layer_stacks.h"
#include "worker/model/mapped_file.h"
#include "worker/model/packed_numbers.h"
#include "worker/model/shard.h"

namespace quire {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxTokenizerBytes = 128 << 20;
constexpr char kGenerationConfig[] = "/generation_config.json";
constexpr const char* kOptionalFiles[] = {"chat_template.jinja", "chat_template.json", "generation_config.json",
                                          "special_tokens_map.json", "added_tokens.json"};
constexpr char kAdapterConfig[] = "adapter_config.json";
constexpr char kAdditionalTemplates[] = "additional_chat_templates";
constexpr size_t kMaxAdditionalTemplates = 64;

// Returns nothing when there is no such file.
absl::StatusOr<std::optional<std::string>> ReadOptionalFile(const std::string& path, size_t max_bytes) {
  absl::StatusOr<std::string> contents = ReadSmallFile(path, max_bytes);
  if (absl::IsNotFound(contents.status())) return std::nullopt;
  if (!contents.ok()) return contents.status();
  return *std::move(contents);
}

// Refuses an empty file and a .json file that is not JSON. The manager checks the rest.
absl::Status CheckTokenizerFile(const std::string& path, const std::string& contents) {
  if (contents.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  if (absl::EndsWith(path, ".json") && !nlohmann::json::accept(contents)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not valid JSON"));
  }
  return absl::OkStatus();
}

// Returns the names of the named chat templates, "additional_chat_templates/NAME.jinja", in their order.
absl::StatusOr<std::vector<std::string>> FindAdditionalTemplates(const std::string& directory) {
  const std::string folder = absl::StrCat(directory, "/", kAdditionalTemplates);
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::EndsWith(name, ".jinja")) continue;
    if (!IsValidUtf8(name)) return absl::InvalidArgumentError(absl::StrCat(folder, " has a name that is not UTF-8"));
    names.push_back(absl::StrCat(kAdditionalTemplates, "/", name));
    if (names.size() > kMaxAdditionalTemplates) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, " has more than ", kMaxAdditionalTemplates, " chat templates"));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    return absl::UnavailableError(absl::StrCat(folder, " cannot be read: ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Also the chat templates, generation_config.json, which has defaults of sampling, and files of older checkpoints. The
// manager reads them. It serves a model without them, or with a broken chat template, too.
absl::StatusOr<std::vector<TokenizerFile>> ReadTokenizerFiles(const std::string& directory) {
  std::vector<TokenizerFile> files;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    const std::string path = absl::StrCat(directory, "/", name);
    QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> contents, ReadOptionalFile(path, kMaxTokenizerBytes));
    if (!contents) continue;
    QUIRE_RETURN_IF_ERROR(CheckTokenizerFile(path, *contents));
    files.push_back({name, *std::move(contents)});
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<std::string> optional, FindAdditionalTemplates(directory));
  optional.insert(optional.end(), std::begin(kOptionalFiles), std::end(kOptionalFiles));
  for (const std::string& name : optional) {
    QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> contents,
                           ReadOptionalFile(absl::StrCat(directory, "/", name), kMaxConfigBytes));
    if (contents.has_value() && !contents->empty()) files.push_back({name, *std::move(contents)});
  }
  return files;
}

// Returns false when there is no tokenizer, or only a tokenizer_config.json, which describes one.
bool HasTokenizer(const std::vector<TokenizerFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const TokenizerFile& file) {
    return file.name == "tokenizer.json" || file.name == "tokenizer.model";
  });
}

absl::Status CheckExists(const std::string& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found) return absl::OkStatus();
  // The name of a model on a hub, which a hint explains, does not end like a file.
  const bool is_file = absl::EndsWithIgnoreCase(path, ".gguf");
  const std::string hint = is_file && !absl::StartsWith(path, "~") ? "" : DirectoryHint(path);
  return absl::NotFoundError(absl::StrCat("there is no ", is_file ? "file " : "folder ", path, hint));
}

absl::Status CheckDirectory(const std::string& directory) {
  QUIRE_RETURN_IF_ERROR(CheckExists(directory));
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(directory, error);
  if (error || status.type() == std::filesystem::file_type::directory) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(directory, " is not a folder", DirectoryHint(directory)));
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/config.json");
  absl::StatusOr<std::string> contents = ReadSmallFile(path, kMaxConfigBytes);
  if (!absl::IsNotFound(contents.status())) return contents;
  return absl::NotFoundError(absl::StrCat("there is no file ", path, DirectoryHint(directory)));
}

absl::Status In(const std::string& directory, absl::string_view separator, const absl::Status& error) {
  return {error.code(), absl::StrCat(directory, separator, error.message())};
}

// Explains an error of the weights. If the file lacks a number of heads, the shape of a tensor of attention tells that
// the number is another one.
absl::Status InWeights(const std::string& directory, const ModelConfig& config, const absl::Status& error) {
  if (IsGgufPath(directory)) return InGguf(directory, GgufArchitecture(config.architecture), error);
  if (config.assumed_heads.empty() || !absl::StrContains(error.message(), "self_attn")) {
    return In(directory, ": ", error);
  }
  return {error.code(), absl::StrCat(directory, "/config.json: ", config.assumed_heads,
                                     ", which may not fit the weights: ", error.message())};
}

absl::StatusOr<GgufFile> OpenGguf(const std::string& path) {
  QUIRE_RETURN_IF_ERROR(CheckExists(path));
  return GgufFile::Open(path);
}

absl::StatusOr<ModelConfig> ParseGgufConfig(const GgufContents& contents, bool is_long) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, GgufConfigJson(contents));
  QUIRE_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, "", is_long));
  QUIRE_ASSIGN_OR_RETURN(const GgufShape shape, ReadGgufShape(contents));
  config.rotates_neighbours = config.rotates_neighbours || shape.permutes_rows;
  config.norms_add_one = false;  // The converter has added it.
  return config;
}

// Counts the stacks of matrices that are not quantized in a checkpoint that is. The load tells what is wrong with files
// that cannot be opened.
void CountPlainStacksOf(const std::string& path, ModelConfig* config) {
  CheckpointQuantization kept = config->quantization;
  kept.keeps_fp8 = CanKeepFp8(kept.fp8_block);
  if (kept.width() == Quantization::kNone) return;
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (checkpoint.ok()) config->quantization.plain_stacks = CountPlainStacks(*config, *checkpoint, kept);
}

// If the checkpoint has an output matrix that differs from the embedding, it is used, whatever config.json says. A base
// model that is to have one of its own lacks it.
void UntieIfDifferent(const std::string& path, ModelConfig* config) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (!config->tie_word_embeddings) {
    config->lacks_output = checkpoint.ok() && checkpoint->has_base_names() && checkpoint->Find(kOutputName) == nullptr;
    config->tie_word_embeddings = config->lacks_output;
    return;
  }
  config->denies_own_output = checkpoint.ok() && HasOwnOutput(*checkpoint);
  config->tie_word_embeddings = !config->denies_own_output;
}

// Makes the configuration from the metadata of a GGUF file, and checks its tensors.
absl::StatusOr<ModelConfig> GgufModelConfig(const GgufFile& file, bool is_long) {
  const GgufContents& contents = file.contents();
  absl::StatusOr<ModelConfig> parsed = ParseGgufConfig(contents, is_long);
  if (!parsed.ok()) {
    const absl::StatusOr<GgufShape> shape = ReadGgufShape(contents);
    return InGguf(file.path(), shape.ok() ? shape->architecture : "", parsed.status());
  }
  ModelConfig config = *std::move(parsed);
  if (HasQ4LayerMatrices(contents)) {
    config.quantization = {.format = CheckpointFormat::kGgufQ4_0, .group = kQ4BlockColumns};
  }
  if (const absl::Status tensors = GgufTensors(contents).status(); !tensors.ok()) {
    return In(file.path(), ": ", tensors);
  }
  CountPlainStacksOf(file.path(), &config);
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(file.path());
  if (checkpoint.ok()) config.quantization.blocks = CountBlocks(config, *checkpoint);
  return config;
}

// Makes the configuration and the tokenizer files from the metadata of a GGUF file.
absl::Status ReadGgufModel(const std::string& path, bool is_long, Model* model) {
  QUIRE_ASSIGN_OR_RETURN(const GgufFile file, OpenGguf(path));
  QUIRE_ASSIGN_OR_RETURN(model->config, GgufModelConfig(file, is_long));
  absl::StatusOr<std::vector<TokenizerFile>> files = GgufTokenizerFiles(file.contents());
  if (!files.ok()) return In(path, ": ", files.status());
  model->tokenizer_files = *std::move(files);
  absl::StatusOr<std::string> sampling = GgufGenerationConfig(file.contents());
  if (!sampling.ok()) return In(path, ": ", sampling.status());
  if (!sampling->empty()) model->tokenizer_files.push_back({"generation_config.json", *std::move(sampling)});
  model->pooling = ReadGgufPooling(file.contents());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckParts(const ModelConfig& config, absl::FunctionRef<bool(OptionalPart)> has,
                        absl::string_view device) {
  std::vector<std::string> missing;
  for (const OptionalPart part : OptionalPartsOf(config)) {
    if (!has(part)) missing.push_back(Name(part));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(config.architecture, " needs ", absl::StrJoin(missing, ", "),
                                                    ", and ", device, " has no kernels for that; a CPU has them"));
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory, bool is_long) {
  if (IsGgufPath(directory)) {
    QUIRE_ASSIGN_OR_RETURN(const GgufFile file, OpenGguf(directory));
    return GgufModelConfig(file, is_long);
  }
  QUIRE_RETURN_IF_ERROR(CheckDirectory(directory));
  QUIRE_ASSIGN_OR_RETURN(const std::string config, ReadConfigFile(directory));
  QUIRE_ASSIGN_OR_RETURN(const std::optional<std::string> generation,
                         ReadOptionalFile(directory + kGenerationConfig, kMaxConfigBytes));
  // Transformers with peft would load another model, and change its weights.
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(directory, "/", kAdapterConfig), error)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, " has ", kAdapterConfig, DirectoryHint(directory),
                                                   ", or remove the file if the weights are merged"));
  }
  absl::StatusOr<ModelConfig> parsed = ParseModelConfig(config, generation.value_or(""), is_long);
  if (!parsed.ok()) return In(directory, "/", parsed.status());
  CountPlainStacksOf(directory, &*parsed);
  UntieIfDifferent(directory, &*parsed);
  return parsed;
}

absl::StatusOr<std::unique_ptr<Model>> ReadModelFiles(const std::string& directory, bool is_long) {
  auto model = std::make_unique<Model>();
  if (IsGgufPath(directory)) {
    QUIRE_RETURN_IF_ERROR(ReadGgufModel(directory, is_long, model.get()));
  } else {
    QUIRE_ASSIGN_OR_RETURN(model->config, ReadModelConfig(directory, is_long));
    QUIRE_ASSIGN_OR_RETURN(model->tokenizer_files, ReadTokenizerFiles(directory));
    model->pooling = ReadPooling([&directory](const std::string& path) {
      return ReadOptionalFile(absl::StrCat(directory, "/", path), kMaxConfigBytes);
    });
  }
  if (!HasTokenizer(model->tokenizer_files)) {
    const std::string missing =
        IsGgufPath(directory)
            ? "tokenizer, because tokenizer.ggml.model is missing in its file or says that it has none"
            : "tokenizer.json or tokenizer.model";
    QUIRE_LOG(kWarning) << "the model has no " << missing << ", so clients can send and receive token ids only"
                        << TokenizerHint(directory);
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& directory, Backend* backend, LoadProgress* progress,
                                                 const WeightRounding& rounding, bool is_long, int rank,
                                                 int num_ranks) {
  LoadProgress own_progress;
  if (progress == nullptr) progress = &own_progress;
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, ReadModelFiles(directory, is_long));
  absl::StatusOr<ModelConfig> shard = ShardOf(model->config, rank, num_ranks);
  if (!shard.ok()) return In(directory, ": ", shard.status());
  model->config = *std::move(shard);
  QUIRE_RETURN_IF_ERROR(CheckParts(
      model->config, [backend](OptionalPart part) { return backend->Has(part); }, backend->Description()));
  QUIRE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(directory));
  progress->Begin(directory, checkpoint.num_files(), checkpoint.num_bytes());
  absl::StatusOr<ModelWeights> weights = LoadWeights(model->config, checkpoint, backend, progress, rounding);
  if (!weights.ok()) return InWeights(directory, model->config, weights.status());
  model->weights = *std::move(weights);
  progress->End();
  QUIRE_LOG(kDebug) << "model: " << Description(model->config) << ", weights " << model->weights.fingerprint
                    << ", quantization " << Name(model->weights.rounding.layers);
  return model;
}

}  // namespace quire
