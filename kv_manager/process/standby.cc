// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/standby.h"

#include <unistd.h>

#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/listen_address.h"
#include "base/status_reason.h"
#include "kv_manager/leadership/boot_clock.h"
#include "kv_manager/leadership/candidate_name.h"
#include "kv_manager/leadership/etcd_lease.h"
#include "kv_manager/leadership/kubernetes_lease.h"
#include "security/credentials.h"

namespace quire {
namespace {

constexpr int64_t kRetryDelayMs = 500;

std::string AddressForClients(const StandbyOptions& options, const std::string& listening) {
  if (!options.advertise.empty()) return options.advertise;
  const std::optional<HostPort> parts = SplitHostPort(listening);
  if (!parts.has_value() || (parts->host != "0.0.0.0" && parts->host != "::")) return listening;
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return listening;
  return absl::StrCat(name, ":", parts->port);
}

}  // namespace

std::unique_ptr<LeaseStore> MakeLeaseStore(const StandbyOptions& options, const std::string& listening) {
  const std::string candidate = NewCandidateName(AddressForClients(options, listening));
  if (options.keeper == LeaseKeeper::kKubernetes) {
    return std::make_unique<KubernetesLease>(KubernetesLeaseOptions{.api = options.kubernetes_api,
                                                                    .credentials = options.kubernetes_account,
                                                                    .name = options.lease_name,
                                                                    .candidate = candidate,
                                                                    .duration = options.lease},
                                             &BootClock());
  }
  const bool has_tls = !options.etcd_tls.authority.empty();
  return std::make_unique<EtcdLease>(EtcdLeaseOptions{
      .endpoints = options.etcd,
      .credentials = has_tls ? TlsChannelCredentials(options.etcd_tls) : grpc::InsecureChannelCredentials(),
      .key = options.lease_name,
      .candidate = candidate,
      .duration = options.lease});
}

absl::Status NotLeaderError(const ElectionStatus& election) {
  std::map<std::string, std::string> metadata;
  if (!election.leader.empty()) metadata["leader"] = election.leader;
  const std::string message =
      absl::StrCat("this manager stands by, ",
                   election.leader.empty() ? "and no manager leads now" : "the leader is at " + election.leader);
  return WithRetryDelay(WithReason(absl::UnavailableError(message), "NOT_LEADER", metadata), kRetryDelayMs);
}

}  // namespace quire
