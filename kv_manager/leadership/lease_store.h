// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_LEASE_STORE_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_LEASE_STORE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace quire {

// Who holds a lease.
struct LeaseHolder {
  bool is_me = false;
  uint64_t term = 0;  // Greater than the term of every earlier holder, and at least 1. Only set if `is_me`.
  // Clients reach the holder there. It is empty if nobody holds the lease, or if that is not known.
  std::string address;
};

// A lease that several managers want and that one of them at most holds. It is kept outside of the managers, and ends
// by itself when its holder does not renew it. Every call returns after `timeout` at the latest. After an error, it is
// not known whether the call had an effect. Used by one thread.
class LeaseStore {
 public:
  virtual ~LeaseStore() = default;

  // Takes the lease if nobody holds it, or if this manager does. Returns who holds it then. If this manager does, the
  // lease lasts at least for its duration, counted from the beginning of this call.
  virtual absl::StatusOr<LeaseHolder> TryAcquire(absl::Duration timeout) = 0;
  // Makes the lease last for its duration again, counted from the beginning of this call. Returns ABORTED if this
  // manager does not hold it any more.
  virtual absl::Status Renew(absl::Duration timeout) = 0;
  // Ends the lease, so that another manager can take it at once. It does nothing if this manager does not hold it. A
  // manager may hold it without knowing, when the answer of TryAcquire was lost.
  virtual absl::Status Release(absl::Duration timeout) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_LEASE_STORE_H_
