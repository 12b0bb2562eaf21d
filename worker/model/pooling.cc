// SPDX-License-Identifier: Apache-2.0

#include "worker/model/pooling.h"

#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_fields.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

using nlohmann::json;
using Read = absl::FunctionRef<absl::StatusOr<std::optional<std::string>>(const std::string& path)>;

constexpr char kModules[] = "modules.json";
constexpr size_t kMaxModules = 16;
constexpr size_t kMaxPathBytes = 256;

struct Modules {
  std::string pooling_path;  // The folder of the pooling module. Empty: there is none.
  bool normalizes = false;
};

// Returns the class of a module, for example "Pooling" for sentence_transformers.models.Pooling.
std::string_view ClassOf(std::string_view type) {
  return type.substr(type.rfind('.') + 1);
}

absl::Status BadModule(size_t index, const std::string& type, const char* allowed) {
  return absl::InvalidArgumentError(absl::StrCat(kModules, ": [", index, "].type is ", Shown(type), ", ", allowed));
}

absl::StatusOr<Modules> ReadModules(const std::string& text) {
  QUIRE_ASSIGN_OR_RETURN(const json modules, ParseModelJson(text, kModules));
  if (!modules.is_array() || modules.size() > kMaxModules) {
    return absl::InvalidArgumentError(absl::StrCat(kModules, " must be an array of at most ", kMaxModules, " modules"));
  }
  Modules result;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (!modules[i].is_object()) return absl::InvalidArgumentError(absl::StrCat(kModules, ": [", i, "] is no object"));
    const JsonFields fields(modules[i], kModules, absl::StrCat("[", i, "]."));
    QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    QUIRE_ASSIGN_OR_RETURN(const std::string path, fields.String("path", ""));
    const std::string_view name = ClassOf(type);
    if (name == "Transformer" && i == 0) {
      if (!path.empty()) return fields.Bad("path", "empty for the transformer");
    } else if (name == "Pooling" && i > 0 && result.pooling_path.empty()) {
      if (path.empty() || path.size() > kMaxPathBytes || path.front() == '/' || absl::StrContains(path, "..")) {
        return fields.Bad("path", absl::StrCat("a folder of the model, in at most ", kMaxPathBytes, " bytes"));
      }
      result.pooling_path = path;
    } else if (name == "Normalize" && !result.pooling_path.empty()) {
      result.normalizes = true;
    } else {
      return BadModule(i, type, "the modules must be Transformer, Pooling and perhaps Normalize");
    }
  }
  return result;
}

constexpr std::pair<const char*, PoolingKind> kModes[] = {
    {"lasttoken", PoolingKind::kLastToken}, {"mean", PoolingKind::kMean}, {"cls", PoolingKind::kFirstToken}};

// The flags of Sentence Transformers before version 6, and the modes that they are since then.
constexpr std::pair<const char*, const char*> kFlags[] = {
    {"pooling_mode_cls_token", "cls"},    {"pooling_mode_lasttoken", "lasttoken"},
    {"pooling_mode_max_tokens", "max"},   {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
    {"pooling_mode_mean_tokens", "mean"}, {"pooling_mode_weightedmean_tokens", "weightedmean"}};

absl::StatusOr<PoolingKind> ReadMode(const json& config, const std::string& file) {
  const JsonFields fields(config, file);
  std::vector<std::pair<std::string, std::string>> modes;  // With the fields that say so.
  if (fields.Has("pooling_mode")) {
    QUIRE_ASSIGN_OR_RETURN(std::string mode, fields.String("pooling_mode"));
    modes.emplace_back("pooling_mode", std::move(mode));
  } else {
    for (const auto& [flag, mode] : kFlags) {
      QUIRE_ASSIGN_OR_RETURN(const bool is_set, fields.Bool(flag, false));
      if (is_set) modes.emplace_back(flag, mode);
    }
  }
  if (modes.empty()) return absl::InvalidArgumentError(absl::StrCat(file, " sets no pooling_mode"));
  if (modes.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", modes[0].first, " and ", modes[1].first, " are set, only one pooling is supported"));
  }
  for (const auto& [mode, kind] : kModes) {
    if (modes[0].second == mode) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", modes[0].first, " asks for ", Shown(modes[0].second),
                                                 ", supported are lasttoken, mean and cls"));
}

absl::StatusOr<std::optional<std::string>> ReadIfAny(Read read, const std::string& file) {
  QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> text, read(file));
  if (text.has_value() && text->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, " is damaged: it has 0 bytes"));
  }
  return text;
}

absl::StatusOr<CheckpointPooling> TryReadPooling(Read read) {
  QUIRE_ASSIGN_OR_RETURN(const std::optional<std::string> modules_json, ReadIfAny(read, kModules));
  if (!modules_json.has_value()) return CheckpointPooling();
  QUIRE_ASSIGN_OR_RETURN(const Modules modules, ReadModules(*modules_json));
  if (modules.pooling_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kModules, " has no module of the type Pooling"));
  }
  const std::string file = absl::StrCat(modules.pooling_path, "/config.json");
  QUIRE_ASSIGN_OR_RETURN(const std::optional<std::string> config_json, ReadIfAny(read, file));
  if (!config_json.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no ", file, ", which ", kModules, " names"));
  }
  QUIRE_ASSIGN_OR_RETURN(const json config, ParseModelJson(*config_json, file));
  if (!config.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, " is no object"));
  QUIRE_ASSIGN_OR_RETURN(const PoolingKind kind, ReadMode(config, file));
  return CheckpointPooling{.kind = kind, .normalizes = modules.normalizes};
}

CheckpointPooling Refused(const absl::Status& status) {
  return {.kind = PoolingKind::kNone, .normalizes = false, .refusal = std::string(status.message())};
}

}  // namespace

CheckpointPooling ReadPooling(Read read) {
  absl::StatusOr<CheckpointPooling> pooling = TryReadPooling(read);
  return pooling.ok() ? *std::move(pooling) : Refused(pooling.status());
}

// llama-server normalizes, and so does Quire. 0 means that the file does not say how.
CheckpointPooling ReadGgufPooling(const GgufContents& contents) {
  constexpr PoolingKind kKinds[] = {PoolingKind::kLastToken, PoolingKind::kMean, PoolingKind::kFirstToken,
                                    PoolingKind::kLastToken};
  const GgufFields fields(contents);
  const absl::StatusOr<std::string> architecture = fields.String("general.architecture");
  if (!architecture.ok()) return Refused(architecture.status());
  const absl::StatusOr<int64_t> type =
      fields.Int(absl::StrCat(*architecture, ".pooling_type"), 0, std::ssize(kKinds) - 1, 0);
  if (!type.ok()) return Refused(type.status());
  return {.kind = kKinds[*type]};
}

}  // namespace quire
