// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_ASYNC_COPIES_H_
#define QUIRE_KERNELS_SIMT_ASYNC_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/problem.h"

namespace quire::simt {

// A copy of 16 bytes in flight from global to shared memory.
struct AsyncCopy {
  char* to;
  const char* from;  // Null writes zeros.
  Place place;
  int64_t group = 0;
  bool has_landed = false;

  void Land();
};

// The asynchronous copies of one thread, in groups, that it has not waited for yet.
class AsyncCopies {
 public:
  void Reset();
  void Issue(AsyncCopy copy);
  void Commit() { ++open_group_; }

  // Lands all copies except the latest `groups_in_flight` committed groups and the uncommitted ones. Passes each of
  // them to done(const AsyncCopy&) and forgets it.
  template <typename Done>
  void Wait(int groups_in_flight, Done done) {
    const int64_t end_group = open_group_ - groups_in_flight;
    size_t num_done = 0;
    while (num_done < copies_.size() && copies_[num_done].group < end_group) {
      copies_[num_done].Land();
      done(copies_[num_done]);
      ++num_done;
    }
    copies_.erase(copies_.begin(), copies_.begin() + num_done);
  }

  // Lands one copy, chosen by `random`, earlier than necessary.
  void LandOne(uint64_t random);

  const std::vector<AsyncCopy>& copies() const { return copies_; }

 private:
  std::vector<AsyncCopy> copies_;  // In the order of issue.
  int64_t open_group_ = 0;         // The group of the next copy; the groups below it are committed.
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_ASYNC_COPIES_H_
