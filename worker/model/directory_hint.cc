// SPDX-License-Identifier: Apache-2.0

#include "worker/model/directory_hint.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {
namespace {

// Returns the names of the files in a directory, sorted. The result is empty if it cannot be read.
std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the first name that ends in `suffix`, or "".
std::string FirstEndingIn(const std::vector<std::string>& names, absl::string_view suffix) {
  const auto it = std::find_if(names.begin(), names.end(),
                               [suffix](const std::string& name) { return absl::EndsWithIgnoreCase(name, suffix); });
  return it == names.end() ? std::string() : *it;
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// Returns whether the path looks like "organisation/model", as models are named on a hub.
bool LooksLikeHubName(std::string_view path) {
  const auto is_allowed = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; };
  return std::all_of(path.begin(), path.end(), is_allowed) && std::count(path.begin(), path.end(), '/') == 1 &&
         absl::ascii_isalnum(path.front()) && path.back() != '/';
}

}  // namespace

std::string DirectoryHint(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (absl::StartsWith(path, "~"))
      return "; ~ is the home directory only where a shell replaces it, as in --model ~/x";
    if (path.empty() || !LooksLikeHubName(path)) return "";
    return absl::StrCat("; if this is the name of a model on a hub, write hf:", path,
                        ", after \"quire-download hf:", path, "\"");
  }
  const std::vector<std::string> names = NamesIn(path);
  if (Has(names, "adapter_config.json")) {
    return "; it is a LoRA adapter, and only whole models are loaded: merge it into its base model with "
           "merge_and_unload() of peft";
  }
  if (Has(names, "config.json") && Has(names, "model.safetensors")) return "";
  if (Has(names, "refs") && Has(names, "snapshots")) {
    const std::vector<std::string> revisions = NamesIn(path + "/snapshots");
    return absl::StrCat("; it is a model's folder in the cache of a hub, give one of its snapshots: ", path,
                        "/snapshots/", revisions.empty() ? "REVISION" : revisions.front());
  }
  std::string pickle = FirstEndingIn(names, ".bin");
  if (pickle.empty()) pickle = FirstEndingIn(names, ".pt");
  if (pickle.empty()) pickle = FirstEndingIn(names, ".pth");
  if (Has(names, "params.json")) {
    return "; it is an original checkpoint of Meta or Mistral, and the Hugging Face form of the model is needed, with "
           "config.json and safetensors files";
  }
  if (!pickle.empty()) {
    return absl::StrCat("; ", pickle,
                        " is a PyTorch pickle, which is not read because it can run code: convert it with "
                        "save_pretrained() of transformers, which writes safetensors");
  }
  if (const std::string gguf = FirstEndingIn(names, ".gguf"); !gguf.empty()) {
    return absl::StrCat("; ", gguf, " is a GGUF file, give its path: ", path, "/", gguf);
  }
  return "";
}

std::string TokenizerHint(const std::string& directory) {
  const std::vector<std::string> names = NamesIn(directory);
  std::string tiktoken = FirstEndingIn(names, ".tiktoken");
  if (tiktoken.empty()) return "";
  return absl::StrCat("; ", tiktoken,
                      " is not read: load the tokenizer with transformers and write tokenizer.json with "
                      "save_pretrained()");
}

}  // namespace quire
