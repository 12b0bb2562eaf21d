// SPDX-License-Identifier: Apache-2.0

#include "serving/http_page.h"

#include <array>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "security/digest.h"

namespace quire {
namespace {

// Removes the port from "name:port" or "[address]:port".
absl::string_view WithoutPort(absl::string_view host) {
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == host.npos ? 0 : bracket);
  return host.substr(0, colon);
}

std::string SourceHash(absl::string_view text) {
  const std::array<uint8_t, 32> digest = Sha256(text);
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  return absl::StrCat("'sha256-", absl::Base64Escape(bytes), "'");
}

}  // namespace

bool IsLocalUser(absl::string_view peer, absl::string_view host, bool is_forwarded) {
  // The rest of 127.0.0.0/8 does not count as local: proxies of service meshes forward remote requests from 127.0.0.6.
  if (is_forwarded || (peer != "127.0.0.1" && peer != "::1" && peer != "::ffff:127.0.0.1")) return false;
  const absl::string_view name = WithoutPort(host);
  return name == "127.0.0.1" || name == "[::1]" || absl::EqualsIgnoreCase(name, "localhost");
}

PageDocument MakePageDocument(absl::string_view html, absl::string_view style, absl::string_view script) {
  return {
      .html = absl::StrReplaceAll(html, {{"/*style.css*/", style}, {"/*page.js*/", script}}),
      .policy = absl::StrCat("default-src 'none'; script-src ", SourceHash(script), "; style-src ", SourceHash(style),
                             "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'")};
}

}  // namespace quire
