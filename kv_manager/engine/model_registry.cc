// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/model_registry.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/ids.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/status.h"
#include "kv_manager/engine/generation_config.h"
#include "kv_manager/engine/model_comparison.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

// The files from which a tokenizer is made.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json",
                                           "special_tokens_map.json", "added_tokens.json"};

// Returns true if a worker has made the files from the metadata of a GGUF file (GgufTokenizerFiles).
bool AreOfGguf(const std::vector<ModelFile>& files) {
  for (const ModelFile& file : files) {
    if (file.name != "tokenizer_config.json") continue;
    const absl::StatusOr<nlohmann::json> config = ReadJson<nlohmann::json>(file.content, file.name);
    return config.ok() && config->is_object() && config->contains(kMadeFrom) && (*config)[kMadeFrom] == "gguf";
  }
  return false;
}

// Returns an error that begins with the name of one of the files. For a GGUF file it begins with the key from whose
// value the file was made.
std::string NamedForUser(absl::string_view error, const std::vector<ModelFile>& files) {
  constexpr std::pair<absl::string_view, absl::string_view> kKeys[] = {
      {"chat_template.jinja", "tokenizer.chat_template"},
      {"tokenizer_config.json: chat_template", "tokenizer.chat_template"},
      {"tokenizer.json", "tokenizer.ggml.*"},
      {"tokenizer.model", "tokenizer.ggml.*"},
      {"tokenizer_config.json", "tokenizer.ggml.*"},
  };
  if (!AreOfGguf(files)) return std::string(error);
  for (const auto& [file, key] : kKeys) {
    if (absl::ConsumePrefix(&error, file)) return absl::StrCat("the GGUF file: ", key, error);
  }
  return std::string(error);
}

absl::Status BadTokenizer(absl::string_view file, absl::string_view reason, const std::vector<ModelFile>& files) {
  const bool names_file = std::any_of(std::begin(kTokenizerFiles), std::end(kTokenizerFiles),
                                      [&](const char* name) { return absl::StartsWith(reason, name); });
  const std::string error = names_file ? std::string(reason) : absl::StrCat(file, ": ", reason);
  return absl::FailedPreconditionError(
      absl::StrCat("worker has a tokenizer that cannot be used: ", NamedForUser(error, files),
                   "; if the file is removed, the model is served for token ids alone"));
}

// Returns null for a checkpoint without a tokenizer.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const WorkerDescription& worker) {
  const std::vector<ModelFile>& model_files = worker.tokenizer_files;
  TokenizerFiles files;
  files.architecture = worker.architecture;
  for (const ModelFile& file : model_files) {
    if (absl::StartsWith(file.name, "tokenizer") && file.content.empty()) {
      return BadTokenizer(file.name, "the file is empty", model_files);
    }
    if (file.name == "tokenizer.json") files.tokenizer_json = file.content;
    if (file.name == "tokenizer.model") files.tokenizer_model = file.content;
    if (file.name == "tokenizer_config.json") files.tokenizer_config_json = file.content;
    if (file.name == "special_tokens_map.json") files.special_tokens_map_json = file.content;
    if (file.name == "added_tokens.json") files.added_tokens_json = file.content;
  }
  if (files.tokenizer_json.empty() && files.tokenizer_model.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(files);
  if (tokenizer.ok()) return *std::move(tokenizer);
  return BadTokenizer(files.tokenizer_json.empty() ? "tokenizer.model" : "tokenizer.json", tokenizer.status().message(),
                      model_files);
}

// `tokenizer` may be null. That of a tokenizer.model has tokens around a prompt even if no other file names them.
absl::StatusOr<std::unique_ptr<const ChatTemplate>> LoadChatTemplate(const WorkerDescription& worker,
                                                                     const Tokenizer* tokenizer) {
  ChatTemplateFiles files;
  const bool has_json = std::any_of(worker.tokenizer_files.begin(), worker.tokenizer_files.end(),
                                    [](const ModelFile& file) { return file.name == "tokenizer.json"; });
  if (tokenizer != nullptr && !has_json) {
    for (const auto& [name, id] :
         {std::pair("bos_token", tokenizer->bos_id()), std::pair("eos_token", tokenizer->eos_id())}) {
      if (id.has_value()) files.default_tokens.emplace_back(name, tokenizer->TokenPiece(*id).value());
    }
  }
  for (const ModelFile& file : worker.tokenizer_files) {
    if (file.name == "chat_template.jinja") files.chat_template_jinja = file.content;
    if (file.name == "chat_template.json") files.chat_template_json = file.content;
    if (file.name == "tokenizer_config.json") files.tokenizer_config_json = file.content;
    if (file.name == "special_tokens_map.json") files.special_tokens_map_json = file.content;
    absl::string_view name = file.name;
    if (absl::ConsumePrefix(&name, "additional_chat_templates/") && absl::ConsumeSuffix(&name, ".jinja")) {
      files.additional.emplace_back(std::string_view(name.data(), name.size()), file.content);
    }
  }
  auto chat_template = ChatTemplate::Load(files);
  if (chat_template.ok()) return chat_template;
  const std::string error = NamedForUser(chat_template.status().message(), worker.tokenizer_files);
  QUIRE_LOG(kWarning) << "model " << worker.model_name << " has a chat template that cannot be used, so messages are "
                      << "refused: " << error;
  return absl::Status(chat_template.status().code(), error);
}

// Warns if the tokenizer seems to be that of another model. Models may have some rows more than their tokenizer has
// tokens, and some tokenizers have an unused token more.
void CompareVocabularies(const ServedModel& model) {
  const size_t num_tokens = model.tokenizer->vocab_size(), num_rows = size_t(model.vocab_size);
  const char* result = nullptr;
  if (num_tokens > num_rows) result = "a prompt with one of the other tokens is refused";
  if (num_tokens < num_rows / 2) result = "the model may choose tokens that have no text";
  if (result == nullptr) return;
  QUIRE_LOG(kWarning) << "model " << model.name << ": the tokenizer has " << num_tokens << " tokens, and vocab_size is "
                      << num_rows << ": " << result << "; is it the tokenizer of another model?";
}

// `most_tokens` is what the operator allows, and is the largest number if no limit was given.
void WarnOfUnusedLimit(const WorkerDescription& description, int most_tokens) {
  if (most_tokens == std::numeric_limits<int>::max() || most_tokens <= description.max_context_tokens) return;
  QUIRE_LOG(kWarning) << "model " << description.model_name << " has a context of " << description.max_context_tokens
                      << " tokens, so --max-context-tokens=" << most_tokens << " changes nothing";
}

}  // namespace

absl::StatusOr<GenerationId> ModelRegistry::Admit(const std::string& address, const WorkerDescription& description) {
  const MutexLock admission_lock(&admission_mutex_);
  QUIRE_RETURN_IF_ERROR(CheckProcess(address, description.process_id));
  std::shared_ptr<const ServedModel> model = Find(description);
  if (model == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(model, MakeModel(description));
    QUIRE_LOG(kInfo) << "generation " << Named("generation", Value(model->generation)) << " begins with worker "
                     << Named("worker", address) << ": model " << model->name << ", numerics "
                     << model->numerics_fingerprint;
  }
  const MutexLock lock(&mutex_);
  if (retained_.has_value() && !retained_->contains(address)) return model->generation;
  processes_[address] = description.process_id;
  auto joined = std::find_if(generations_.begin(), generations_.end(),
                             [&](const Generation& generation) { return generation.model == model; });
  if (joined == generations_.end()) joined = generations_.insert(joined, {description, model, {}});
  if (joined->addresses.contains(address)) return model->generation;
  for (Generation& generation : generations_) generation.addresses.erase(address);
  joined->addresses.insert(address);
  std::rotate(generations_.begin(), joined, std::next(joined));
  ForgetEmpty();
  return model->generation;
}

void ModelRegistry::Retain(std::set<std::string> addresses) {
  const MutexLock lock(&mutex_);
  const std::set<std::string>& retained = retained_.emplace(std::move(addresses));
  for (Generation& generation : generations_) {
    std::erase_if(generation.addresses, [&](const std::string& address) { return !retained.contains(address); });
  }
  std::erase_if(processes_, [&](const auto& process) { return !retained.contains(process.first); });
  ForgetEmpty();
}

std::vector<std::shared_ptr<const ServedModel>> ModelRegistry::models() const {
  std::vector<std::shared_ptr<const ServedModel>> models;
  const MutexLock lock(&mutex_);
  for (const Generation& generation : generations_) models.push_back(generation.model);
  return models;
}

std::shared_ptr<const ServedModel> ModelRegistry::Find(const WorkerDescription& description) const {
  const MutexLock lock(&mutex_);
  for (const Generation& generation : generations_) {
    if (IsSameModel(generation.description, description)) return generation.model;
  }
  return nullptr;
}

namespace {

std::shared_ptr<const GuideVocabulary> GuideVocabularyOf(const ServedModel& model) {
  auto vocabulary = std::make_shared<GuideVocabulary>();
  for (TokenId token = 0; token < model.vocab_size; ++token) {
    const std::string bytes = model.GuideBytes(token);
    vocabulary->bytes += bytes;
    vocabulary->lengths.push_back(static_cast<uint32_t>(bytes.size()));
  }
  vocabulary->end_tokens = model.eos_token_ids;
  return vocabulary;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelRegistry::MakeModel(const WorkerDescription& description) {
  auto model = std::make_shared<ServedModel>();
  model->name = description.model_name;
  model->architecture = description.architecture;
  model->numerics_fingerprint = description.numerics_fingerprint;
  model->vocab_size = description.vocab_size;
  WarnOfUnusedLimit(description, max_context_tokens_);
  model->max_context_tokens = std::min(max_context_tokens_, description.max_context_tokens);
  model->eos_token_ids = description.eos_token_ids;
  model->bos_token_id = description.bos_token_id;
  model->pooling = description.pooling;
  model->embeds_only = description.embeds_only;
  QUIRE_ASSIGN_OR_RETURN(model->tokenizer, LoadTokenizer(description));
  if (model->tokenizer != nullptr) CompareVocabularies(*model);
  if (model->tokenizer != nullptr && !model->eos_token_ids.empty()) {
    // The model owns the function that refers to it.
    model->guide_vocabulary =
        std::make_unique<LazyGuideVocabulary>([served = model.get()] { return GuideVocabularyOf(*served); });
  }
  model->chat_template = LoadChatTemplate(description, model->tokenizer.get());
  for (const ModelFile& file : description.tokenizer_files) {
    if (file.name != "generation_config.json" || !reads_defaults_) continue;
    QUIRE_ASSIGN_OR_RETURN(model->defaults, ParseGenerationConfig(file.content, model->vocab_size));
  }
  model->generation = GenerationId{++last_id_};
  model->family = FindFamily(description);
  if (model->family == FamilyId{0}) model->family = FamilyId{++last_family_};
  return model;
}

FamilyId ModelRegistry::FindFamily(const WorkerDescription& description) const {
  const MutexLock lock(&mutex_);
  for (const Generation& generation : generations_) {
    if (IsSameFamily(generation.description, description)) return generation.model->family;
  }
  return FamilyId{0};
}

FamilyId ModelRegistry::FamilyOf(GenerationId generation) const {
  const MutexLock lock(&mutex_);
  for (const Generation& other : generations_) {
    if (other.model->generation == generation) return other.model->family;
  }
  return FamilyId{0};
}

std::string ModelRegistry::DifferenceBetween(GenerationId generation, GenerationId other) const {
  const MutexLock lock(&mutex_);
  const WorkerDescription* description = nullptr;
  const WorkerDescription* other_description = nullptr;
  for (const Generation& candidate : generations_) {
    if (candidate.model->generation == generation) description = &candidate.description;
    if (candidate.model->generation == other) other_description = &candidate.description;
  }
  if (description == nullptr || other_description == nullptr) return "";
  const auto [known, is_new] = differences_.try_emplace({Value(generation), Value(other)});
  if (is_new) known->second = DescribeDifference(*description, *other_description);
  return known->second;
}

absl::Status ModelRegistry::CheckProcess(const std::string& address, const std::string& process_id) const {
  if (process_id.empty()) return absl::OkStatus();
  const MutexLock lock(&mutex_);
  for (const auto& [other, other_id] : processes_) {
    if (other == address || other_id != process_id) continue;
    return absl::FailedPreconditionError(absl::StrCat("the worker at ", address, " is the process that has joined at ",
                                                      other, "; each worker must have one address in --workers"));
  }
  return absl::OkStatus();
}

void ModelRegistry::ForgetEmpty() {
  if (std::erase_if(generations_, [](const Generation& generation) { return generation.addresses.empty(); }) > 0) {
    differences_.clear();
  }
}

}  // namespace quire
