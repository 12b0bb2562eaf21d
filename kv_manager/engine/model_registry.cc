#include "kv_manager/engine/model_registry.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace quire {
namespace {

absl::Status CheckSame(const char* field, const std::string& ours, const std::string& theirs) {
  if (ours == theirs) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker has ", field, " '", theirs, "', the first worker has '", ours, "'"));
}

std::string Name(const std::optional<TokenId>& token) {
  return token.has_value() ? absl::StrCat(*token) : "none";
}

absl::Status CheckSameModel(const WorkerDescription& ours, const WorkerDescription& theirs) {
  QUIRE_RETURN_IF_ERROR(CheckSame("model", ours.model_name, theirs.model_name));
  QUIRE_RETURN_IF_ERROR(CheckSame("architecture", ours.architecture, theirs.architecture));
  QUIRE_RETURN_IF_ERROR(CheckSame("vocab_size", absl::StrCat(ours.vocab_size), absl::StrCat(theirs.vocab_size)));
  QUIRE_RETURN_IF_ERROR(
      CheckSame("max_context_tokens", absl::StrCat(ours.max_context_tokens), absl::StrCat(theirs.max_context_tokens)));
  QUIRE_RETURN_IF_ERROR(
      CheckSame("eos_token_ids", absl::StrJoin(ours.eos_token_ids, " "), absl::StrJoin(theirs.eos_token_ids, " ")));
  if (ours.numerics_fingerprint != theirs.numerics_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker has numerics_fingerprint '", theirs.numerics_fingerprint, "', the first worker has '",
        ours.numerics_fingerprint,
        "'; all workers of a manager must have the same weights, --kv-type and --cpu-kernels, so that any of "
        "them yields the same tokens; the manager accepts other workers after a restart"));
  }
  QUIRE_RETURN_IF_ERROR(CheckSame("bos_token_id", Name(ours.bos_token_id), Name(theirs.bos_token_id)));
  if (ours.tokenizer_files == theirs.tokenizer_files) return absl::OkStatus();
  return absl::FailedPreconditionError("worker has other tokenizer files than the first worker");
}

absl::Status BadTokenizer(absl::string_view file, absl::string_view reason) {
  const bool names_file = absl::StartsWith(reason, "tokenizer");
  return absl::FailedPreconditionError(
      absl::StrCat("worker has a tokenizer that cannot be used: ", names_file ? "" : file, names_file ? "" : ": ",
                   reason, "; without its tokenizer files the model is served for token ids alone"));
}

// Null for a checkpoint without a tokenizer.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::vector<ModelFile>& model_files) {
  TokenizerFiles files;
  for (const ModelFile& file : model_files) {
    if (file.content.empty()) return BadTokenizer(file.name, "the file is empty");
    if (file.name == "tokenizer.json") files.tokenizer_json = file.content;
    if (file.name == "tokenizer.model") files.tokenizer_model = file.content;
    if (file.name == "tokenizer_config.json") files.tokenizer_config_json = file.content;
  }
  if (files.tokenizer_json.empty() && files.tokenizer_model.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(files);
  if (tokenizer.ok()) return *std::move(tokenizer);
  return BadTokenizer(files.tokenizer_json.empty() ? "tokenizer.model" : "tokenizer.json",
                      tokenizer.status().message());
}

}  // namespace

absl::Status ModelRegistry::Admit(const WorkerDescription& description) {
  const MutexLock admission_lock(&admission_mutex_);
  if (first_.has_value()) return CheckSameModel(*first_, description);
  auto model = std::make_shared<ServedModel>();
  model->name = description.model_name;
  model->architecture = description.architecture;
  model->vocab_size = description.vocab_size;
  model->max_context_tokens = std::min(max_context_tokens_, description.max_context_tokens);
  model->eos_token_ids = description.eos_token_ids;
  model->bos_token_id = description.bos_token_id;
  QUIRE_ASSIGN_OR_RETURN(model->tokenizer, LoadTokenizer(description.tokenizer_files));
  first_ = description;
  const MutexLock lock(&mutex_);
  model_ = std::move(model);
  return absl::OkStatus();
}

std::shared_ptr<const ServedModel> ModelRegistry::model() const {
  const MutexLock lock(&mutex_);
  return model_;
}

}  // namespace quire
