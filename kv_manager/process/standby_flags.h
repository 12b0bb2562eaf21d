// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_STANDBY_FLAGS_H_
#define QUIRE_KV_MANAGER_PROCESS_STANDBY_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/settings.h"
#include "security/tls_files.h"

namespace quire {

// Says where the lease is kept that says which of several managers leads.
enum class LeaseKeeper {
  kNone,  // This is the only manager.
  kEtcd,
  kKubernetes,
};

struct StandbyOptions {
  LeaseKeeper keeper = LeaseKeeper::kNone;
  std::string lease_name = "quire-manager";
  absl::Duration lease = absl::Seconds(4);             // In whole seconds.
  std::string advertise;                               // Address for clients. Empty: made from --listen.
  std::vector<std::string> etcd = {"127.0.0.1:2379"};  // Addresses of the members.
  TlsFiles etcd_tls;                                   // Without an authority, connections are plain text.
  std::string kubernetes_api;                          // https://host:port, or http:// on this machine.
  std::string kubernetes_account = "/var/run/secrets/kubernetes.io/serviceaccount";  // A folder.
};

// Adds a group with the flags of managers that stand by.
void AddStandbyFlags(StandbyOptions* options, Settings* table);

// Checks what depends on several of these flags, and finds the API server of the cluster. `is_insecure` allows plain
// text to other machines.
absl::Status FinishStandby(bool is_insecure, StandbyOptions* options);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_STANDBY_FLAGS_H_
