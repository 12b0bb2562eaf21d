// SPDX-License-Identifier: Apache-2.0

#include "base/listen_address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace quire {

std::optional<HostPort> SplitHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return std::nullopt;
  if (port < 0 || port > kMaxListenPort) return std::nullopt;
  absl::string_view host = address.substr(0, colon);
  const bool is_bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || host.find_first_of("[]/") != absl::string_view::npos) return std::nullopt;
  if (!is_bracketed && absl::StrContains(host, ':')) return std::nullopt;
  return HostPort{std::string(host), absl::StrCat(port)};
}

bool IsListenAddress(absl::string_view address) {
  if (absl::ConsumePrefix(&address, kUnixPrefix)) return !address.empty();
  return SplitHostPort(address).has_value();
}

bool HasBadPort(absl::string_view address) {
  const bool has_port = !absl::StartsWith(address, kUnixPrefix) && absl::StrContains(address, ':');
  return has_port && !IsListenAddress(address) && IsListenAddress(WithPort(std::string(address), 0));
}

std::string WithPort(const std::string& address, int port) {
  if (absl::StartsWith(address, kUnixPrefix)) return address;
  return absl::StrCat(absl::string_view(address).substr(0, address.rfind(':')), ":", port);
}

std::string RankAddress(const std::string& address, int rank) {
  if (rank == 0) return address;
  if (absl::StartsWith(address, kUnixPrefix)) return absl::StrCat(address, ".", rank);
  const size_t colon = address.rfind(':');
  int port = 0;
  QUIRE_CHECK(colon != std::string::npos && absl::SimpleAtoi(address.substr(colon + 1), &port)) << address;
  return absl::StrCat(address.substr(0, colon + 1), port + rank);
}

}  // namespace quire
