// SPDX-License-Identifier: Apache-2.0

#include "base/web_access.h"

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

ABSL_FLAG(std::string, host_names, "",
          "DNS names, separated by commas, by which clients and proxies reach the HTTP ports of this service without "
          "TLS. Besides these, it answers to IP addresses, to names without a dot, to the name of its machine, and to "
          "names below localhost, internal, svc and cluster.local. Requests for another host are refused, because a "
          "web page could have given its own name the address of this machine. * accepts every name.");
ABSL_FLAG(std::string, allowed_origins, "",
          "Origins of web pages, separated by commas, such as https://chat.example. A browser may send requests of "
          "these pages to the HTTP ports of this service; requests of other sites are refused. * allows every origin.");

namespace quire {

absl::StatusOr<WebAccess> ReadWebAccess() {
  WebAccess access;
  access.host_names = absl::StrSplit(absl::GetFlag(FLAGS_host_names), ',', absl::SkipEmpty());
  for (const std::string& name : access.host_names) {
    if (name == "*" || name.find_first_of("*:/ ") == name.npos) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--host-names has '", name, "', which is no host name; it has neither a port nor a scheme"));
  }
  access.allowed_origins = absl::StrSplit(absl::GetFlag(FLAGS_allowed_origins), ',', absl::SkipEmpty());
  for (const std::string& origin : access.allowed_origins) {
    const size_t scheme = origin.find("://");
    const bool has_host = scheme != origin.npos && scheme > 0 && origin.size() > scheme + 3;
    if (origin == "*" || (has_host && !absl::StrContains(origin.substr(scheme + 3), "/"))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--allowed-origins has '", origin, "', which is no origin; it is written scheme://host:port"));
  }
  return access;
}

}  // namespace quire
