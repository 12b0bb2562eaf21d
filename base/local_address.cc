// SPDX-License-Identifier: Apache-2.0

#include "base/local_address.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

// Returns the host of host:port without the brackets of IPv6. Returns "" for a list of addresses and for an address
// with a name server of its own. An address without a port is returned as it is.
std::string Host(absl::string_view address) {
  for (const absl::string_view prefix : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::ConsumePrefix(&address, prefix)) break;
  }
  // A list may contain other machines. An address with its own name server (dns://server/host) may mean another
  // machine.
  if (address.find_first_of(",/") != absl::string_view::npos) return "";
  absl::string_view host = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return std::string(host);
}

}  // namespace

bool IsLocalAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix-abstract:")) return true;
  const std::string host = Host(address);
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace quire
