// SPDX-License-Identifier: Apache-2.0

#include "base/web_access.h"

#include "absl/strings/match.h"
#include "base/status.h"

namespace quire {
namespace {

absl::Status CheckHostNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == "*" || name.find_first_of("*:/ ") == name.npos) continue;
    return InvalidArgument("--host-names has '", name, "', which is no host name; it has neither a port nor a scheme");
  }
  return absl::OkStatus();
}

absl::Status CheckOrigins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    const size_t scheme = origin.find("://");
    const bool has_host = scheme != origin.npos && scheme > 0 && origin.size() > scheme + 3;
    if (origin == "*" || (has_host && !absl::StrContains(origin.substr(scheme + 3), "/"))) continue;
    return InvalidArgument("--allowed-origins has '", origin,
                           "', which is no origin; it is written scheme://host:port");
  }
  return absl::OkStatus();
}

}  // namespace

void AddWebFlags(WebAccess* access, Settings* table) {
  table->AddList(
      "host_names", &access->host_names,
      "DNS names, separated by commas, by which clients and proxies reach the HTTP ports of this service without TLS. "
      "Besides these, it answers to IP addresses, to names without a dot, to the name of its machine, and to names "
      "below localhost, internal, svc and cluster.local. Requests for another host are refused, because a web page "
      "could have given its own name the address of this machine. * accepts every name.",
      &CheckHostNames);
  table->AddList("allowed_origins", &access->allowed_origins,
                 "Origins of web pages, separated by commas, such as https://chat.example. A browser may send requests "
                 "of these pages to the HTTP ports of this service; requests of other sites are refused. * allows "
                 "every origin.",
                 &CheckOrigins);
}

}  // namespace quire
