// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_HUB_CACHE_H_
#define QUIRE_WORKER_MODEL_HUB_CACHE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// The name of a model of the Hugging Face hub. It is written in one of these forms, each with or without "@revision" at
// its end:
//   hf:owner/name              the checkpoint in a repository
//   hf:owner/name/FILE.gguf    a GGUF file of a repository; it may be in a folder of the repository
struct HubModel {
  std::string repository;         // owner/name.
  std::string file;               // The path in the repository, or empty.
  std::string revision = "main";  // A branch, a tag, a commit or another reference, such as refs/pr/1.
};

// Returns whether the text shall be the name of a model of the hub, and no path.
bool IsHubName(absl::string_view text);

// Reads such a name. Returns INVALID_ARGUMENT with the text and the part that is wrong, as in
// "hf:a/b/c.bin, its file ...". No part of a name leads out of the cache.
absl::StatusOr<HubModel> ParseHubName(absl::string_view text);

// Returns the folder where the hub's own programs keep what they download: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE,
// $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, the first one whose variable is set.
std::string HubCacheFolder();

// Returns the path of the checkpoint directory or of the GGUF file in `cache`, a folder with the layout of the hub's
// own programs. It never uses the network. Returns NOT_FOUND when the model or a part of it is missing; the message
// names the place where it should be, and the command that downloads it.
absl::StatusOr<std::string> FindInHubCache(const HubModel& model, const std::string& cache);

// Returns the path for the value of --model: of a name of the hub, its place in HubCacheFolder(); otherwise the value.
absl::StatusOr<std::string> ModelPath(const std::string& model);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_HUB_CACHE_H_
