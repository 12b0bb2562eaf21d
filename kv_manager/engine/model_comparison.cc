// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/model_comparison.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/json_reader.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

// See WorkerDescription of worker.proto.
absl::string_view WeightsOf(const WorkerDescription& worker) {
  return absl::string_view(worker.numerics_fingerprint).substr(0, worker.numerics_fingerprint.find('/'));
}

// Returns the file tokenizer_config.json without that note. Returns nothing if it is no JSON object.
std::optional<nlohmann::json> WithoutNote(const ModelFile& file) {
  absl::StatusOr<nlohmann::json> config = ReadJson<nlohmann::json>(file.content, file.name);
  if (!config.ok() || !config->is_object()) return std::nullopt;
  config->erase(kMadeFrom);
  return *std::move(config);
}

// Returns true if both files mean the same for tokens and templates. Workers of different versions of Quire may make
// notes that differ, and then still have the same model.
bool HaveSameMeaning(const ModelFile& a, const ModelFile& b) {
  if (a == b) return true;
  if (a.name != b.name || a.name != "tokenizer_config.json") return false;
  const std::optional<nlohmann::json> config = WithoutNote(a);
  return config.has_value() && config == WithoutNote(b);
}

// The parts of a numerics fingerprint by the flag or the property that decides about them.
using Numerics = std::map<std::string, std::string>;

constexpr char kDevice[] = "device";
constexpr char kWeights[] = "weights";
constexpr char kFp8[] = "layers in FP8";  // No flag chooses it: a worker keeps the FP8 of a checkpoint, or does not.

// Returns the part of a fingerprint without the number of its formula, such as "int8" for "int8 1".
std::string WithoutVersion(const std::string& part) {
  return part.substr(0, part.rfind(' '));
}

// Divides a fingerprint such as "3f0a/cpu fma 2/int8 1/kv-float32". The worker writes the parts behind the device.
Numerics NumericsOf(const WorkerDescription& worker) {
  Numerics numerics = {
      {"--quantize", "none"}, {kFp8, "none"}, {"--quantize-output", "false"}, {"--kv-type", "none"}, {kDevice, "none"}};
  numerics[kWeights] = std::string(WeightsOf(worker));
  std::string rest = worker.numerics_fingerprint.substr(numerics[kWeights].size());
  while (!rest.empty()) {
    const size_t slash = rest.rfind('/');
    const std::string part = rest.substr(slash + 1);
    if (absl::StartsWith(part, "kv-")) {
      numerics["--kv-type"] = part.substr(3);
    } else if (absl::StartsWith(part, "output-")) {
      numerics["--quantize-output"] = part.substr(7);
    } else if (absl::StartsWith(part, "int8") || absl::StartsWith(part, "int4")) {
      numerics["--quantize"] = part;
    } else if (absl::StartsWith(part, "fp8")) {
      numerics[kFp8] = part;
    } else {
      numerics[kDevice] = rest.substr(1);
      break;
    }
    rest.resize(slash);
  }
  return numerics;
}

// The device of a fingerprint has the kernels of a CPU, the properties of a GPU, or how a simulated worker ends.
std::string DeviceFlag(const std::string& a, const std::string& b) {
  for (const auto& [kind, flag] :
       {std::pair("cpu ", "--cpu-kernels"), {"cuda ", "GPU"}, {"simulated ", "--simulated-output-tokens"}}) {
    if (absl::StartsWith(a, kind) && absl::StartsWith(b, kind)) return flag;
  }
  return "--device";
}

void CompareNumerics(const WorkerDescription& worker, const WorkerDescription& other,
                     std::vector<std::string>* differences) {
  Numerics theirs = NumericsOf(other);
  for (auto [name, value] : NumericsOf(worker)) {
    std::string their_value = theirs[name];
    if (value == their_value) continue;
    const bool is_device = name == kDevice;
    if (!is_device && WithoutVersion(value) != WithoutVersion(their_value)) {
      value = WithoutVersion(value);
      their_value = WithoutVersion(their_value);
    }
    differences->push_back(
        absl::StrCat(is_device ? DeviceFlag(value, their_value) : name, " (", value, ", not ", their_value, ")"));
  }
}

const ModelFile* FindFile(const std::vector<ModelFile>& files, const std::string& name) {
  const auto file = std::find_if(files.begin(), files.end(), [&](const ModelFile& f) { return f.name == name; });
  return file == files.end() ? nullptr : &*file;
}

void CompareFiles(const WorkerDescription& worker, const WorkerDescription& other,
                  std::vector<std::string>* differences) {
  std::set<std::string> names;
  for (const auto* const files : {&worker.tokenizer_files, &other.tokenizer_files}) {
    for (const ModelFile& file : *files) names.insert(file.name);
  }
  for (const std::string& name : names) {
    const ModelFile* const mine = FindFile(worker.tokenizer_files, name);
    const ModelFile* const theirs = FindFile(other.tokenizer_files, name);
    if (mine != nullptr && theirs != nullptr) {
      if (!HaveSameMeaning(*mine, *theirs)) {
        const size_t size = mine->content.size(), their_size = theirs->content.size();
        differences->push_back(size == their_size ? absl::StrCat(name, " (other contents of ", size, " bytes)")
                                                  : absl::StrCat(name, " (", size, ", not ", their_size, " bytes)"));
      }
    } else {
      differences->push_back(absl::StrCat(name, mine == nullptr ? " (is missing)" : " (is not there for the others)"));
    }
  }
}

std::string InWords(const ModelPooling& pooling) {
  if (pooling.kind == Pooling::kNone) return absl::StrCat("none, because ", pooling.refusal);
  const char* const state = pooling.kind == Pooling::kMean         ? "mean"
                            : pooling.kind == Pooling::kFirstToken ? "first token"
                                                                   : "last token";
  return absl::StrCat(state, pooling.normalizes ? ", normalized" : "");
}

}  // namespace

bool IsSameFamily(const WorkerDescription& a, const WorkerDescription& b) {
  return WeightsOf(a) == WeightsOf(b) && a.model_name == b.model_name && a.architecture == b.architecture &&
         a.vocab_size == b.vocab_size && a.max_context_tokens == b.max_context_tokens &&
         a.eos_token_ids == b.eos_token_ids && a.bos_token_id == b.bos_token_id && a.pooling == b.pooling &&
         std::equal(a.tokenizer_files.begin(), a.tokenizer_files.end(), b.tokenizer_files.begin(),
                    b.tokenizer_files.end(), HaveSameMeaning);
}

bool IsSameModel(const WorkerDescription& a, const WorkerDescription& b) {
  return a.numerics_fingerprint == b.numerics_fingerprint && IsSameFamily(a, b);
}

std::string DescribeDifference(const WorkerDescription& worker, const WorkerDescription& other) {
  std::vector<std::string> differences;
  const auto compare = [&differences](const char* name, const auto& value, const auto& their_value,
                                      const char* unit = "") {
    if (value == their_value) return;
    differences.push_back(absl::StrCat(name, " (", value, ", not ", their_value, unit, ")"));
  };
  compare("model name", worker.model_name, other.model_name);
  compare("architecture", worker.architecture, other.architecture);
  compare("vocabulary", worker.vocab_size, other.vocab_size, " tokens");
  compare("context", worker.max_context_tokens, other.max_context_tokens, " tokens");
  const auto in_words = [](const std::vector<TokenId>& ids) { return ids.empty() ? "none" : absl::StrJoin(ids, " "); };
  compare("end tokens", in_words(worker.eos_token_ids), in_words(other.eos_token_ids));
  const auto bos_of = [](const WorkerDescription& of) {
    return of.bos_token_id.has_value() ? absl::StrCat(*of.bos_token_id) : "none";
  };
  compare("BOS token", bos_of(worker), bos_of(other));
  compare("embeddings", InWords(worker.pooling), InWords(other.pooling));
  CompareNumerics(worker, other, &differences);
  CompareFiles(worker, other, &differences);
  return absl::StrJoin(differences, ", ");
}

}  // namespace quire
