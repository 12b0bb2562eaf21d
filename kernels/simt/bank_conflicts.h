// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_BANK_CONFLICTS_H_
#define QUIRE_KERNELS_SIMT_BANK_CONFLICTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "kernels/simt/problem.h"
#include "kernels/simt/types.h"

namespace quire::simt {

// Counts the additional passes of plain shared-memory loads and stores. They occur when lanes of a warp use different
// words of the same one of the 32 banks. The emulator runs lanes one by one, so accesses must be grouped into
// instructions. An instruction is taken to be the n-th access of each lane at the same place since the warp last met in
// a barrier or collective. This is exact if all lanes execute the place equally often. If some lanes skip it, accesses
// may be grouped differently.
class BankConflicts {
 public:
  explicit BankConflicts(int num_warps) : warps_(num_warps) {}

  // All lanes of the warp are at one point. Counts the accesses that only some lanes have made.
  void OnMeeting(int warp);
  // Records an access by a thread at an offset of shared memory.
  void OnAccess(int thread, size_t offset, size_t bytes, const Place& place);

  // Includes all accesses before the last meeting of their warp, and the later ones that all lanes have made.
  int64_t count() const { return count_; }

  // One instruction of a warp.
  struct Group {
    size_t bytes = 0;
    uint32_t lanes = 0;  // One bit per lane that has made the access.
    std::array<uint32_t, kWarpSize> offset = {};
  };
  // Returns the passes beyond those that the size requires: 8-byte accesses process half a warp at a time, 16-byte
  // accesses a quarter.
  static int CountConflicts(const Group& group);

 private:
  // The accesses of one warp at one place.
  struct Site {
    std::array<int64_t, kWarpSize> num_made = {};
    int64_t num_complete = 0;
    std::deque<Group> open;  // The first entry is access number num_complete.
  };
  struct Key {
    const char* file;
    uint32_t line;
    uint32_t column;
    size_t bytes;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  struct Warp {
    std::unordered_map<Key, Site, KeyHash> sites;
    int num_open = 0;  // Number of open groups in all sites.
  };

  std::vector<Warp> warps_;
  int64_t count_ = 0;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_BANK_CONFLICTS_H_
