// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_UCX_UCX_GROUP_H_
#define QUIRE_KERNELS_UCX_UCX_GROUP_H_

#include <memory>
#include <string>

#include "kernels/collective.h"

namespace quire::ucx {

// A group whose ranks are processes, through shared memory, TCP or RDMA, by UCX (openucx.org). The group ends when a
// rank that was killed or stopped has been silent for a second (beats.h). Over a network it ends at once when the
// connection to a rank from which something is missing has ended; UCX does not report that in shared memory. Then the
// object is destroyed, with all that it has of UCX, and the next session opens another.
//
// A wait looks for messages for 30 us and then sleeps until one comes, so that ranks which share a core do not stop
// each other.
class UcxGroup : public SessionCollective {
 public:
  // Returns null and the reason when UCX cannot use the transport.
  static std::unique_ptr<UcxGroup> Open(const GroupTransport& transport, std::string* why_not);
};

}  // namespace quire::ucx

#endif  // QUIRE_KERNELS_UCX_UCX_GROUP_H_
