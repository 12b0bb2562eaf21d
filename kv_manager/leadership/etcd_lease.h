// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_ETCD_LEASE_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_ETCD_LEASE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "etcd/lease.grpc.pb.h"
#include "grpcpp/security/credentials.h"
#include "kv_manager/leadership/lease_store.h"

namespace quire {

struct EtcdLeaseOptions {
  // Members of the cluster, host:port. There is at least one.
  std::vector<std::string> endpoints;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string key;          // The same for all candidates.
  std::string candidate;    // The name of this one, see NewCandidateName.
  absl::Duration duration;  // Length of the lease, in whole seconds. etcd may grant a longer one.
};

// A key in etcd (3.4 or later) that belongs to a lease of etcd. It exists as long as somebody leads, and its value is
// the name of the leader. The revision with which the key appeared is the term. After a failed call, the next
// one is sent to the next member.
class EtcdLease : public LeaseStore {
 public:
  explicit EtcdLease(const EtcdLeaseOptions& options);

  absl::StatusOr<LeaseHolder> TryAcquire(absl::Duration timeout) override;
  absl::Status Renew(absl::Duration timeout) override;
  absl::Status Release(absl::Duration timeout) override;

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  // A member of the cluster.
  struct Member {
    std::unique_ptr<etcdserverpb::KV::Stub> keys;
    std::unique_ptr<etcdserverpb::Lease::Stub> leases;
  };

  absl::StatusOr<LeaseHolder> Acquire(Deadline deadline);
  // Extends lease_id_. ABORTED: it has ended.
  absl::Status KeepAlive(Deadline deadline);
  absl::StatusOr<etcdserverpb::RangeResponse> ReadKey(Deadline deadline);
  absl::Status Grant(Deadline deadline);
  absl::Status Revoke(Deadline deadline);

  Member& member() { return members_[current_]; }
  // Returns the same status. After an error of the member, chooses the next one.
  absl::Status Checked(absl::Status status);

  const EtcdLeaseOptions options_;
  std::vector<Member> members_;
  size_t current_ = 0;
  int64_t lease_id_ = 0;  // 0: there is none.
  uint64_t term_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_ETCD_LEASE_H_
