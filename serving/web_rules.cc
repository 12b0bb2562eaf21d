// SPDX-License-Identifier: Apache-2.0

#include "serving/web_rules.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

// No site of the internet has a name below these: RFC 6761, ICANN's decision on "internal", and the names of services
// in Kubernetes.
constexpr const char* kPrivateDomains[] = {".localhost", ".internal", ".svc", ".cluster.local"};

// Removes the port from "name:port" or "[address]:port", and the dot behind the name.
absl::string_view NameOf(absl::string_view host) {
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == host.npos ? 0 : bracket);
  return absl::StripSuffix(host.substr(0, colon), ".");
}

bool IsAddress(absl::string_view name) {
  in_addr v4;
  in6_addr v6;
  if (absl::ConsumePrefix(&name, "[")) {
    return absl::ConsumeSuffix(&name, "]") && inet_pton(AF_INET6, std::string(name).c_str(), &v6) == 1;
  }
  return inet_pton(AF_INET, std::string(name).c_str(), &v4) == 1;
}

std::string MachineName() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

bool IsListed(absl::string_view text, const std::vector<std::string>& list) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& entry) {
    return entry == "*" || absl::EqualsIgnoreCase(absl::StripSuffix(entry, "."), text);
  });
}

// Returns whether the origin "http://host:port" belongs to the host that was asked for. A proxy may have ended TLS, so
// the scheme does not count, and either side may leave its default port out.
bool IsSameOrigin(absl::string_view origin, absl::string_view host) {
  const bool is_https = absl::ConsumePrefix(&origin, "https://");
  if (!is_https && !absl::ConsumePrefix(&origin, "http://")) return false;
  const char* const port = is_https ? ":443" : ":80";
  return absl::EqualsIgnoreCase(absl::StripSuffix(origin, port), absl::StripSuffix(host, port));
}

// Returns whether a person follows a link, or reloads a page, in a tab of the browser.
bool IsVisit(const HttpHead& head) {
  return (head.method == "GET" || head.method == "HEAD") && head.Header("sec-fetch-mode") == "navigate" &&
         head.Header("sec-fetch-dest") == "document";
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text), "\"");
}

}  // namespace

bool IsHostOfService(absl::string_view host, const std::vector<std::string>& names) {
  const absl::string_view name = NameOf(host);
  if (IsAddress(name) || !absl::StrContains(name, '.') || IsListed(name, names)) return true;
  const auto is_below = [&](const char* domain) { return absl::EndsWithIgnoreCase(name, domain); };
  if (std::any_of(std::begin(kPrivateDomains), std::end(kPrivateDomains), is_below)) return true;
  static const auto* const machine = new std::string(MachineName());
  return !machine->empty() &&
         (absl::EqualsIgnoreCase(name, *machine) || absl::EqualsIgnoreCase(name, absl::StrCat(*machine, ".local")));
}

std::optional<HttpRefusal> CheckWebRules(const HttpHead& head, const WebAccess& access, bool has_tls) {
  if (!has_tls && !IsHostOfService(head.host, access.host_names)) {
    return HttpRefusal{403, absl::StrCat("the request is for the host ", Quoted(head.host),
                                         ", which is not known to be this one; --host-names can add it")};
  }
  const absl::string_view origin = head.Header("origin");
  const absl::string_view site = head.Header("sec-fetch-site");
  if (!IsOfPage(head) || site == "same-origin" || site == "none" || IsVisit(head)) return std::nullopt;
  if (site.empty() && IsSameOrigin(origin, head.host)) return std::nullopt;
  if (IsListed(origin, access.allowed_origins)) return std::nullopt;
  return HttpRefusal{403, absl::StrCat("a web page of ", origin.empty() ? "another site" : Quoted(origin),
                                       " sends this request; --allowed-origins can allow it")};
}

bool IsOfPage(const HttpHead& head) {
  return head.Has("origin") || head.Has("sec-fetch-site");
}

}  // namespace quire
