// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_COLLECTIVE_H_
#define QUIRE_KERNELS_COLLECTIVE_H_

#include <cstddef>

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

}  // namespace quire

#endif  // QUIRE_KERNELS_COLLECTIVE_H_
