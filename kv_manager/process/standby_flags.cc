// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/standby_flags.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/listen_address.h"
#include "base/local_address.h"
#include "base/status.h"
#include "security/transport_flags.h"

namespace quire {
namespace {

constexpr absl::Duration kMinLease = absl::Seconds(2);
constexpr absl::Duration kMaxLease = absl::Seconds(60);

absl::Status CheckEtcd(bool is_insecure, const StandbyOptions& options) {
  const bool has_tls = !options.etcd_tls.authority.empty();
  QUIRE_RETURN_IF_ERROR(CheckHasAuthority(options.etcd_tls, "--etcd-tls-"));
  for (const std::string& member : options.etcd) {
    if (!SplitHostPort(member).has_value()) {
      return InvalidArgument("--etcd has '", member, "', it must be host:port");
    }
    if (!has_tls && !is_insecure && !IsLocalAddress(member)) {
      return InvalidArgument("--etcd has '", member,
                             "', which is reached over a network: give --etcd-tls-ca, or --insecure");
    }
  }
  return absl::OkStatus();
}

// Other managers tell clients this address, so it must be one that a client can connect to.
absl::Status CheckAdvertise(absl::string_view address) {
  const std::optional<HostPort> parts = SplitHostPort(address);
  const bool is_for_clients =
      !parts.has_value() || (parts->host != "0.0.0.0" && parts->host != "::" && parts->port != "0" &&
                             parts->host.find_first_of(" \t\r\n") == std::string::npos);
  if (IsListenAddress(address) && is_for_clients) return absl::OkStatus();
  return InvalidArgument("--advertise is '", address,
                         "', it must be host:port with the host and the port at which clients reach this manager");
}

// The API server of the cluster in which this process runs. The result is empty outside of a cluster.
std::string ApiOfThisCluster() {
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) return "";
  const bool is_ipv6 = absl::StrContains(host, ":");
  return absl::StrCat("https://", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", port);
}

absl::Status FinishKubernetes(StandbyOptions* options) {
  options->kubernetes_api = std::string(absl::StripSuffix(options->kubernetes_api, "/"));
  if (options->kubernetes_api.empty()) options->kubernetes_api = ApiOfThisCluster();
  absl::string_view address = options->kubernetes_api;
  if (address.empty()) {
    return InvalidArgument("--kubernetes-api is missing: this process does not run in a pod of Kubernetes");
  }
  const bool is_local_proxy = absl::ConsumePrefix(&address, "http://") && IsLocalAddress(address);
  if (!is_local_proxy && !absl::StartsWith(address, "https://")) {
    return InvalidArgument("--kubernetes-api is '", options->kubernetes_api,
                           "', it must be https://host:port, or http://host:port of this machine");
  }
  return absl::OkStatus();
}

}  // namespace

void AddStandbyFlags(StandbyOptions* options, Settings* table) {
  table->Group("Several managers:");
  table->AddChoice(
      "standby", &options->keeper,
      {{"off", LeaseKeeper::kNone}, {"etcd", LeaseKeeper::kEtcd}, {"kubernetes", LeaseKeeper::kKubernetes}},
      "Run as one of several managers for the same workers: the one that holds a lease leads, and the others stand by "
      "until they get it. The lease is kept by etcd (3.4 or later) or by kubernetes (a Lease object, which must "
      "exist). off: this is the only manager.");
  table->Add("lease_name", &options->lease_name,
             "With --standby: the name of the Lease object, or of the key in etcd. It is the same for all managers "
             "of the same workers.");
  table->Add("lease_duration", &options->lease, TimeRange::kAny,
             "With --standby: how long a leader that does not answer keeps the lease, in whole seconds, 2s to 60s. "
             "The leader renews the lease at every third of this time.");
  table->Add(
      "advertise", &options->advertise,
      "With --standby: the address at which clients reach this manager. A manager that stands by tells clients the "
      "address of the leader. If empty, it is --listen, with the name of the machine in place of 0.0.0.0 or [::].");
  table->AddList("etcd", &options->etcd,
                 "With --standby=etcd: the addresses of the members of etcd, host:port, separated by commas.",
                 /*rule=*/nullptr, /*keeps_empty=*/true);
  table->Add("etcd_tls_ca", &options->etcd_tls.authority,
             "PEM file with the certificates of authorities. With it the manager uses TLS to etcd, and one of these "
             "authorities must have issued the certificate of each member.");
  table->Add("etcd_tls_cert", &options->etcd_tls.certificate,
             "PEM file with the certificate that the manager shows to etcd.");
  table->Add("etcd_tls_key", &options->etcd_tls.key,
             "PEM file with the private key of --etcd-tls-cert, without a password.");
  table->Add("kubernetes_api", &options->kubernetes_api,
             "With --standby=kubernetes: the address of the API server, https://host:port, or http://host:port for a "
             "proxy on this machine. If empty, it is the API server of the cluster in which the manager runs.");
  table->Add("kubernetes_account", &options->kubernetes_account,
             "With --standby=kubernetes: the folder with the files token, ca.crt and namespace of the service "
             "account. They are read again for each call.");
}

absl::Status FinishStandby(bool is_insecure, StandbyOptions* options) {
  if (options->keeper == LeaseKeeper::kNone) return absl::OkStatus();
  const bool is_name = std::all_of(options->lease_name.begin(), options->lease_name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
  if (options->lease_name.empty() || !is_name) {
    return InvalidArgument("--lease-name is '", options->lease_name,
                           "', it must have small letters, digits, '-' and '.' alone");
  }
  if (options->lease < kMinLease || options->lease > kMaxLease ||
      options->lease % absl::Seconds(1) != absl::ZeroDuration()) {
    return InvalidArgument("--lease-duration is ", absl::FormatDuration(options->lease),
                           ", it must be whole seconds in 2s .. 1m");
  }
  if (!options->advertise.empty()) QUIRE_RETURN_IF_ERROR(CheckAdvertise(options->advertise));
  return options->keeper == LeaseKeeper::kEtcd ? CheckEtcd(is_insecure, *options) : FinishKubernetes(options);
}

}  // namespace quire
