// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/unknown_url.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

// Returns what the message says besides the path.
std::string Advice(absl::string_view path, const std::vector<absl::string_view>& known) {
  if (absl::StartsWith(path, "/v1/responses")) {
    return ": this server does not have the Responses interface; use /v1/chat/completions";
  }
  const absl::string_view asked = absl::StripSuffix(path, "/");
  absl::string_view nearest;  // The longest one.
  for (const absl::string_view candidate : known) {
    if (candidate.size() < 2 || candidate.size() <= nearest.size()) continue;
    if (absl::StrCat("/v1", asked) == candidate || absl::EndsWith(asked, candidate)) nearest = candidate;
  }
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace

ApiError UnknownUrl(absl::string_view path, const std::vector<absl::string_view>& known) {
  return {.http_code = 404,
          .message = absl::StrCat("there is nothing at ", path, Advice(path, known)),
          .type = "not_found_error",
          .code = "unknown_url"};
}

}  // namespace quire
