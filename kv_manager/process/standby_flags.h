// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_STANDBY_FLAGS_H_
#define QUIRE_KV_MANAGER_PROCESS_STANDBY_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/flags.h"
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
  std::string lease_name;
  absl::Duration lease;            // In whole seconds.
  std::string advertise;           // Clients reach this manager there. Empty: made from --listen.
  std::vector<std::string> etcd;   // Addresses of the members.
  TlsFiles etcd_tls;               // Without an authority, connections are plain text.
  std::string kubernetes_api;      // https://host:port, or http:// on this machine.
  std::string kubernetes_account;  // A folder.
};

FlagGroup StandbyFlagGroup();

// Reads these flags. `is_insecure` allows plain text to other machines.
absl::StatusOr<StandbyOptions> ReadStandbyFlags(bool is_insecure);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_STANDBY_FLAGS_H_
