// SPDX-License-Identifier: Apache-2.0

#include "launcher/model_source.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr char kHubPrefix[] = "hf:";

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

absl::StatusOr<ModelSource> FindModel(const std::string& typed) {
  if (absl::StartsWith(typed, kHubPrefix)) return ModelSource{typed, true};
  if (Exists(typed)) return ModelSource{typed, false};
  const std::string owner = typed.substr(0, typed.find('/'));
  const bool may_be_name = owner.size() < typed.size() && !owner.empty() && owner[0] != '.' && owner[0] != '~';
  if (may_be_name && !Exists(owner)) return ModelSource{absl::StrCat(kHubPrefix, typed), true};
  return InvalidArgument("MODEL is '", typed, "', and there is no such folder or file",
                         may_be_name ? absl::StrCat("; a model of the hub is written hf:", typed) : "");
}

}  // namespace quire
