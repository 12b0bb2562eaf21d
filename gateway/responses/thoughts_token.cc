// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/thoughts_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"

namespace quire {
namespace {

constexpr absl::string_view kBegin = "quire.1.";

}  // namespace

std::string ThoughtsToken(absl::string_view thoughts) {
  return absl::StrCat(kBegin, absl::WebSafeBase64Escape(thoughts));
}

std::optional<std::string> ThoughtsOfToken(absl::string_view token) {
  std::string thoughts;
  if (!absl::ConsumePrefix(&token, kBegin) || !absl::WebSafeBase64Unescape(token, &thoughts)) return std::nullopt;
  if (!IsValidUtf8(thoughts)) return std::nullopt;
  return thoughts;
}

}  // namespace quire
