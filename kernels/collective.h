// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_COLLECTIVE_H_
#define QUIRE_KERNELS_COLLECTIVE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend_status.h"

namespace quire {

// Moves bytes between the ranks of a group, which share the products of one model. It never adds: all sums are made by
// the operations, in an order that does not depend on the number of ranks. All ranks make the same calls in the same
// order and with the same numbers of bytes. The calls that move belong to the thread that computes; the others are
// thread-safe.
//
// A group ends when Abort is called or when a peer is lost, and never begins again: the next session makes another one.
// Then every call that moves, also one that waits, returns false at once, and what it was to write is undefined.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends `bytes` bytes to every rank, and writes what rank r has sent to `to` + r * bytes. `to` has size() * bytes.
  virtual bool AllGather(const void* from, size_t bytes, void* to) = 0;
  // Sends the bytes at `from` + r * bytes to rank r, and writes what rank r has sent to `to` + r * bytes.
  virtual bool AllToAll(const void* from, size_t bytes, void* to) = 0;

  // Ends the group on this rank. `reason` names the rank that is missing. Of several calls the first one counts.
  virtual void Abort(const BackendStatus& reason) = 0;
  // Returns why the group has ended, or OK.
  virtual BackendStatus Status() const = 0;
};

// What the bytes of a group move through.
struct GroupTransport {
  enum class Kind {
    kShared,   // Memory of the one host on which all ranks are.
    kNetwork,  // TCP or RDMA between hosts. A peer whose process has ended is noticed at once.
  };
  Kind kind = Kind::kShared;
  std::string devices = "";  // Of the network, separated by commas, for example "eth0" or "mlx5_0:1". Empty: all.
};

// What the ranks of a group show each other when they connect, so that nobody else can take part.
using GroupKey = std::array<uint8_t, 32>;

// A group of processes, which serves one session: a rank opens it, tells its address, and joins when it knows the
// addresses of all ranks. All functions but Abort and Status belong to the thread that computes.
class SessionCollective : public Collective {
 public:
  // Returns the address of this rank, which the others need. At most 4 KiB.
  virtual const std::string& address() const = 0;

  // Connects to all ranks: addresses[r] is that of rank r, and addresses[rank] is the own one. Waits until all have
  // done so. Returns false when the group has ended, also because a peer has another key. Call it once, before
  // everything that moves bytes.
  virtual bool Join(int rank, const std::vector<std::string>& addresses, const GroupKey& key) = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_COLLECTIVE_H_
