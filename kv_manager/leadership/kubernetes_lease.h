// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_KUBERNETES_LEASE_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_KUBERNETES_LEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/http_client.h"
#include "kv_manager/leadership/lease_store.h"
#include "nlohmann/json.hpp"

namespace quire {

struct KubernetesLeaseOptions {
  std::string api;          // The address of the API server: https://host:port, or http:// for a local proxy.
  std::string credentials;  // A folder with the files token, ca.crt and namespace, as every pod has one.
  std::string name;         // Name of the Lease object, which must exist.
  std::string candidate;    // The name of this manager, see NewCandidateName.
  absl::Duration duration;  // In whole seconds.
};

// A Lease object of Kubernetes (coordination.k8s.io/v1). Whoever changes it names the version that it has read, and the
// API server refuses the change if there is a newer one. A candidate takes the lease when its holder has not changed it
// for the duration that the object names, by the candidate's own clock: times of other machines are never read. The
// number of changes of the holder, plus one, is the term.
class KubernetesLease : public LeaseStore {
 public:
  // `clock` is borrowed. It must also run while the process or the machine sleeps.
  KubernetesLease(const KubernetesLeaseOptions& options, const Clock* clock);

  absl::StatusOr<LeaseHolder> TryAcquire(absl::Duration timeout) override;
  absl::Status Renew(absl::Duration timeout) override;
  absl::Status Release(absl::Duration timeout) override;

 private:
  // Reads the object. `until_us` is the time of the clock at which the call must have ended.
  absl::Status Read(int64_t until_us);
  // Writes the object with another holder, which may be empty. Returns ABORTED if somebody has changed it since it was
  // read.
  absl::Status Write(const std::string& holder, int64_t transitions, int64_t until_us);
  // Sets lease_ to the object that the call returns.
  absl::Status Call(const std::string& method, const std::string& body, int64_t until_us);
  bool IsFree() const;
  LeaseHolder Holder() const;

  const KubernetesLeaseOptions options_;
  const Clock* const clock_;
  HttpClient http_;

  // The object as it was read or written last.
  nlohmann::json lease_;
  std::string version_;
  std::string holder_;
  int64_t transitions_ = 0;
  bool may_hold_ = false;  // This manager has tried to take the lease.
  int64_t duration_us_ = 0;
  int64_t seen_us_ = 0;  // When this version was seen first.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_KUBERNETES_LEASE_H_
