// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_address.h"

#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;
constexpr char kForms[] = "it must be host:port, unix:path or dns:///name:port";

template <typename... Parts>
absl::Status Bad(absl::string_view address, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("'", address, "' ", parts...));
}

}  // namespace

absl::Status CheckWorkerAddress(absl::string_view address) {
  absl::string_view rest = address;
  if (absl::ConsumePrefix(&rest, kUnixPrefix)) {
    if (!rest.empty() && rest.size() <= kMaxPathBytes) return absl::OkStatus();
    return Bad(address, "has a path of ", rest.size(), " bytes, it must have 1 .. ", kMaxPathBytes);
  }
  absl::ConsumePrefix(&rest, kDnsPrefix);
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return Bad(address, "has no port, ", kForms);
  absl::string_view host = rest.substr(0, colon);
  const absl::string_view port = rest.substr(colon + 1);
  const bool is_bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty()) return Bad(address, "has an empty host, ", kForms);
  if (host.find_first_of("[]/ \t") != absl::string_view::npos) return Bad(address, "has host '", host, "', ", kForms);
  if (!is_bracketed && absl::StrContains(host, ':')) {
    return Bad(address, "has host '", host, "', an IPv6 address must be in brackets, as in [::1]:50061");
  }
  int number;
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > kMaxPort) {
    return Bad(address, "has port '", port, "', it must be 1 .. ", kMaxPort);
  }
  return absl::OkStatus();
}

}  // namespace quire
