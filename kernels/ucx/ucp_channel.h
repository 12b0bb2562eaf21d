// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_UCX_UCP_CHANNEL_H_
#define QUIRE_KERNELS_UCX_UCP_CHANNEL_H_

#include <ucp/api/ucp.h>

#include <cstddef>
#include <string>

#include "kernels/collective.h"

namespace quire::ucx {

// An end of UCX with connections to peers. All but the constructor belongs to one thread at a time.
class UcpChannel {
 public:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t loss = UCS_OK;  // Why the connection has ended. Always OK in shared memory.
  };

  UcpChannel() = default;
  ~UcpChannel();

  UcpChannel(const UcpChannel&) = delete;
  UcpChannel& operator=(const UcpChannel&) = delete;

  // Opens the end. `in_memory` is the value of UCX_TLS for memory of one host. Returns why that is not possible, or an
  // empty string.
  std::string Start(const GroupTransport& transport, const char* in_memory);
  // The address that peers need.
  const std::string& address() const { return address_; }
  // Connects to the peer at `address`. `peer` must outlive this object.
  ucs_status_t Connect(const std::string& address, Peer* peer);

  // Send and receive messages with a tag. They return as the functions of UCX do: null for one that is complete. What
  // is not complete needs the bytes.
  ucs_status_ptr_t Send(const Peer& peer, const void* bytes, size_t size, ucp_tag_t tag);
  ucs_status_ptr_t Receive(void* bytes, size_t size, ucp_tag_t tag);
  // Lets UCX work. Returns whether there was something to do.
  bool Progress() { return ucp_worker_progress(worker_) > 0; }
  // Waits until what was sent has left, up to 100 ms.
  void Flush();
  // Returns a descriptor to poll until there is something to do, or -1 if there is already, or if UCX has none.
  int Arm();

 private:
  GroupTransport::Kind kind_ = GroupTransport::Kind::kShared;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_ = -1;  // Of UCX; -1 where its transports have no events.
  std::string address_;
};

}  // namespace quire::ucx

#endif  // QUIRE_KERNELS_UCX_UCP_CHANNEL_H_
