// SPDX-License-Identifier: Apache-2.0

#include "serving/page_document.h"

#include <array>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "security/digest.h"

namespace quire {
namespace {

std::string SourceHash(absl::string_view text) {
  const std::array<uint8_t, 32> digest = Sha256(text);
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  return absl::StrCat("'sha256-", absl::Base64Escape(bytes), "'");
}

}  // namespace

PageDocument MakePageDocument(absl::string_view html, absl::string_view style, absl::string_view script) {
  return {
      .html = absl::StrReplaceAll(html, {{"/*style.css*/", style}, {"/*page.js*/", script}}),
      .policy = absl::StrCat("default-src 'none'; script-src ", SourceHash(script), "; style-src ", SourceHash(style),
                             "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'")};
}

}  // namespace quire
