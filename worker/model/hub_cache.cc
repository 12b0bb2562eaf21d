// SPDX-License-Identifier: Apache-2.0

#include "worker/model/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "worker/model/checkpoint.h"
#include "worker/model/directory_hint.h"
#include "worker/model/mapped_file.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kPrefix = "hf:";
constexpr size_t kMaxPartLength = 255;      // Limit of a file system.
constexpr size_t kMaxReferenceBytes = 256;  // A reference holds one commit.
constexpr size_t kMaxNamesShown = 5;

// A part of a path that is an ordinary name, and neither hidden nor an option of a command.
bool IsPart(absl::string_view part) {
  const auto is_allowed = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part.size() <= kMaxPartLength && part.front() != '.' && part.front() != '-' &&
         std::all_of(part.begin(), part.end(), is_allowed);
}

bool AreParts(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return std::all_of(parts.begin(), parts.end(), IsPart);
}

bool IsCommit(absl::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), absl::ascii_isxdigit);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);  // False for a link whose file is missing.
}

std::string Written(const HubModel& model) {
  return absl::StrCat(kPrefix, model.repository, model.file.empty() ? "" : "/", model.file,
                      model.revision == "main" ? "" : "@", model.revision == "main" ? "" : model.revision);
}

// `what` says what is missing.
absl::Status Missing(const HubModel& model, const std::string& cache, const std::string& what) {
  return absl::NotFoundError(absl::StrCat(
      Written(model), " is not in the cache of the hub, ", cache, ": ", what, "; download it with \"quire-download ",
      Written(model), "\", or name another cache with HF_HUB_CACHE (a worker never downloads anything)"));
}

// Returns the GGUF files of a snapshot, as paths inside it, sorted. The result is empty when it cannot be read.
std::vector<std::string> GgufFilesIn(const std::string& snapshot) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
    if (absl::EndsWithIgnoreCase(it->path().filename().string(), ".gguf") && Exists(it->path().string())) {
      files.push_back(it->path().lexically_relative(snapshot).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the commit that the model's revision means.
absl::StatusOr<std::string> FindCommit(const HubModel& model, const std::string& cache, const std::string& folder) {
  if (IsCommit(model.revision)) return model.revision;
  const std::string path = absl::StrCat(folder, "/refs/", model.revision);
  if (!Exists(path)) return Missing(model, cache, absl::StrCat("there is no file ", path));
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxReferenceBytes));
  const absl::string_view commit = absl::StripAsciiWhitespace(text);
  if (!IsCommit(commit)) return Missing(model, cache, absl::StrCat(path, " has no commit of 40 hexadecimal digits"));
  return std::string(commit);
}

// Checks that a snapshot has config.json and all weights. A download that was cut leaves some of the files.
absl::Status CheckCheckpoint(const HubModel& model, const std::string& cache, const std::string& snapshot) {
  if (!Exists(snapshot + "/config.json")) {
    std::vector<std::string> files = GgufFilesIn(snapshot);
    if (files.empty()) return Missing(model, cache, absl::StrCat("there is no file ", snapshot, "/config.json"));
    if (files.size() > kMaxNamesShown) files.resize(kMaxNamesShown);
    return absl::InvalidArgumentError(
        absl::StrCat(Written(model), " has GGUF files and no config.json; name one file: ",
                     absl::StrJoin(files, " or ", [&](std::string* out, const auto& file) {
                       HubModel one = model;
                       one.file = file;
                       absl::StrAppend(out, Written(one));
                     })));
  }
  const absl::StatusOr<std::set<std::string>> names = WeightFileNames(snapshot);
  if (absl::IsNotFound(names.status()) && DirectoryHint(snapshot).empty()) {
    return Missing(model, cache, absl::StrCat("there are no weights in ", snapshot));
  }
  QUIRE_RETURN_IF_ERROR(names.status());
  std::vector<std::string> missing;
  for (const std::string& name : *names) {
    if (!Exists(absl::StrCat(snapshot, "/", name))) missing.push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  return Missing(model, cache,
                 absl::StrCat(missing.size(), " of ", names->size(), " files of weights are missing, the first one is ",
                              snapshot, "/", missing.front()));
}

// Returns the value of an environment variable, or "". As for the hub's own programs, ~ is the home directory.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return "";
  if (!absl::StartsWith(value, "~/")) return value;
  const char* const home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, value + 1);
}

}  // namespace

bool IsHubName(absl::string_view text) {
  return absl::StartsWith(text, kPrefix);
}

absl::StatusOr<HubModel> ParseHubName(absl::string_view text) {
  absl::string_view rest = absl::StripPrefix(text, kPrefix);
  HubModel model;
  if (const size_t at = rest.find('@'); at != absl::string_view::npos) {
    model.revision = std::string(rest.substr(at + 1));
    rest = rest.substr(0, at);
    if (!AreParts(model.revision)) {
      return InvalidArgument(text, ", its revision \"", model.revision,
                             "\" must be a branch, a tag or a commit; @revision belongs at the end of a name");
    }
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits('/', 2));
  if (const size_t colon = rest.find(':'); colon != absl::string_view::npos) {
    return InvalidArgument(text, ", but a tag such as \"", rest.substr(colon),
                           "\" names no file; write the file of the repository: hf:owner/name/FILE.gguf");
  }
  if (parts.size() < 2 || !IsPart(parts[0]) || !IsPart(parts[1]) ||
      absl::StrContains(absl::StrCat(parts[0], "/", parts[1]), "--")) {
    return InvalidArgument(text,
                           ", a name of a model must be hf:owner/name or hf:owner/name/FILE.gguf, with or without "
                           "@revision");
  }
  model.repository = absl::StrCat(parts[0], "/", parts[1]);
  if (parts.size() < 3) return model;
  model.file = std::string(parts[2]);
  if (!AreParts(model.file) || !absl::EndsWithIgnoreCase(model.file, ".gguf")) {
    return InvalidArgument(text, ", its file \"", model.file,
                           "\" must be a GGUF file; other checkpoints are loaded whole, by hf:", model.repository);
  }
  return model;
}

std::string HubCacheFolder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (std::string folder = Variable(name); !folder.empty()) return folder;
  }
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = Variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/huggingface/hub";
  return Variable("HOME") + "/.cache/huggingface/hub";
}

absl::StatusOr<std::string> FindInHubCache(const HubModel& model, const std::string& cache) {
  const std::string folder = absl::StrCat(cache, "/models--", absl::StrReplaceAll(model.repository, {{"/", "--"}}));
  if (!Exists(folder)) return Missing(model, cache, absl::StrCat("there is no folder ", folder));
  QUIRE_ASSIGN_OR_RETURN(const std::string commit, FindCommit(model, cache, folder));
  const std::string snapshot = absl::StrCat(folder, "/snapshots/", commit);
  if (!Exists(snapshot)) return Missing(model, cache, absl::StrCat("there is no folder ", snapshot));
  if (model.file.empty()) {
    QUIRE_RETURN_IF_ERROR(CheckCheckpoint(model, cache, snapshot));
    return snapshot;
  }
  const std::string path = absl::StrCat(snapshot, "/", model.file);
  if (!Exists(path)) return Missing(model, cache, absl::StrCat("there is no file ", path));
  return path;
}

absl::StatusOr<std::string> ModelPath(const std::string& model) {
  if (!IsHubName(model)) return model;
  QUIRE_ASSIGN_OR_RETURN(const HubModel parsed, ParseHubName(model));
  return FindInHubCache(parsed, HubCacheFolder());
}

}  // namespace quire
