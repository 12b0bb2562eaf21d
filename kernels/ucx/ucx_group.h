// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_UCX_UCX_GROUP_H_
#define QUIRE_KERNELS_UCX_UCX_GROUP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collective.h"

namespace quire::ucx {

// What the ranks of a group show each other when they connect, so that nobody else can take part.
using GroupKey = std::array<uint8_t, 32>;

// A group whose ranks are processes, through shared memory, TCP or RDMA, by UCX (openucx.org). It serves one session: a
// rank opens it, tells its address, and joins when it knows the addresses of all ranks. UCX does not report a peer that
// is lost in shared memory, so a rank waits until Abort. Then the object is destroyed, with all that it has of UCX, and
// the next session opens another.
//
// A wait looks for messages for 30 us and then sleeps until one comes, so that ranks which share a core do not stop
// each other. All functions but Abort and Status belong to the thread that computes.
class UcxGroup : public Collective {
 public:
  // `transports` is a value of UCX_TLS: "posix,cma,self" within a host, "tcp,self" across hosts, or "" for all that UCX
  // finds. Returns null and the reason when UCX cannot use them.
  static std::unique_ptr<UcxGroup> Open(const std::string& transports, std::string* why_not);

  // Returns the address of this rank, which the others need. At most 4 KiB.
  virtual const std::string& address() const = 0;

  // Connects to all ranks: addresses[r] is the address of rank r, also of this one. Waits until all have done so.
  // Returns false when the group has ended, also because a peer has another key. Call it once, before everything that
  // moves bytes.
  virtual bool Join(int rank, const std::vector<std::string>& addresses, const GroupKey& key) = 0;
};

}  // namespace quire::ucx

#endif  // QUIRE_KERNELS_UCX_UCX_GROUP_H_
