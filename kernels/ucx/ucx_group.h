// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_UCX_UCX_GROUP_H_
#define QUIRE_KERNELS_UCX_UCX_GROUP_H_

#include <memory>
#include <string>

#include "kernels/collective.h"

namespace quire::ucx {

// A group whose ranks are processes, through shared memory, TCP or RDMA, by UCX (openucx.org). UCX does not report a
// peer that is lost in shared memory, so a rank waits until Abort. Over a network the group ends when the connection to
// a peer from which something is missing has ended. Then the object is destroyed, with all that it has of UCX, and the
// next session opens another.
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
