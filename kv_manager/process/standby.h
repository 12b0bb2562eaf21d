// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_STANDBY_H_
#define QUIRE_KV_MANAGER_PROCESS_STANDBY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kv_manager/leadership/election.h"
#include "kv_manager/leadership/lease_store.h"
#include "kv_manager/process/standby_flags.h"

namespace quire {

// The lease that the options name. `listening` is the address at which this manager listens. REQUIRES:
// CheckTlsFiles(options.etcd_tls) is OK, and the keeper is not kNone.
std::unique_ptr<LeaseStore> MakeLeaseStore(const StandbyOptions& options, const std::string& listening);

// The error of calls to a manager that does not lead. It names the leader, if that is known.
absl::Status NotLeaderError(const ElectionStatus& election);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_STANDBY_H_
