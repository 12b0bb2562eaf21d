// SPDX-License-Identifier: Apache-2.0

#include "client/library/endpoint.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace quire {
namespace {

// sockaddr_un::sun_path with its terminating zero.
constexpr size_t kMaxSocketPathBytes = 107;

absl::Status Wrong(absl::string_view endpoint, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the endpoint \"", endpoint, "\" ", what, "; expected host:port or unix:path"));
}

absl::Status CheckSocketPath(absl::string_view endpoint, absl::string_view path) {
  if (path.empty()) return Wrong(endpoint, "has no path");
  if (path.size() > kMaxSocketPathBytes) {
    return Wrong(endpoint,
                 absl::StrCat("has a path of ", path.size(), " bytes, at most ", kMaxSocketPathBytes, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status CheckHostAndPort(absl::string_view endpoint, absl::string_view host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  // The last colon of [::1] is part of the address.
  if (colon == absl::string_view::npos || absl::EndsWith(host_and_port, "]")) return Wrong(endpoint, "has no port");
  const absl::string_view host = host_and_port.substr(0, colon);
  const absl::string_view port = host_and_port.substr(colon + 1);
  if (host.empty()) return Wrong(endpoint, "has no host");
  if (absl::StrContains(host, ":") && !(absl::StartsWith(host, "[") && absl::EndsWith(host, "]"))) {
    return Wrong(endpoint, "has several colons: put an IPv6 address in brackets, as in [::1]:50051");
  }
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) {
    return Wrong(endpoint, absl::StrCat("has the port \"", port, "\", which is not a number in [1, 65535]"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEndpoint(absl::string_view endpoint) {
  if (endpoint.empty()) return absl::InvalidArgumentError("the endpoint is empty; expected host:port or unix:path");
  if (std::any_of(endpoint.begin(), endpoint.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f; })) {
    return absl::InvalidArgumentError(
        "the endpoint has a space or a character that is not ASCII; expected host:port or unix:path");
  }
  for (const absl::string_view scheme : {"http://", "https://", "grpc://", "tcp://"}) {
    if (absl::StartsWith(endpoint, scheme)) return Wrong(endpoint, absl::StrCat("begins with ", scheme));
  }
  absl::string_view rest = endpoint;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    absl::ConsumePrefix(&rest, "//");
    return CheckSocketPath(endpoint, rest);
  }
  if (absl::ConsumePrefix(&rest, "unix-abstract:")) return CheckSocketPath(endpoint, rest);
  if (absl::ConsumePrefix(&rest, "dns:")) return CheckHostAndPort(endpoint, rest.substr(rest.rfind('/') + 1));
  if (absl::ConsumePrefix(&rest, "ipv4:") || absl::ConsumePrefix(&rest, "ipv6:")) {
    return CheckHostAndPort(endpoint, rest.substr(rest.rfind(',') + 1));
  }
  if (absl::StrContains(rest, "/")) return Wrong(endpoint, "has a slash");
  return CheckHostAndPort(endpoint, rest);
}

std::vector<std::string> SplitEndpoints(absl::string_view endpoints) {
  if (absl::StartsWith(endpoints, "ipv4:") || absl::StartsWith(endpoints, "ipv6:")) return {std::string(endpoints)};
  return absl::StrSplit(endpoints, ',');
}

absl::Status CheckEndpoints(absl::string_view endpoints) {
  for (const std::string& endpoint : SplitEndpoints(endpoints)) QUIRE_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  return absl::OkStatus();
}

}  // namespace quire
