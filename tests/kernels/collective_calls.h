// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_COLLECTIVE_CALLS_H_
#define QUIRE_TESTS_KERNELS_COLLECTIVE_CALLS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/collective.h"

namespace quire {

// What rank `from` sends to rank `to` in a call, at place i.
inline uint32_t Word(int from, int to, int call, size_t i) {
  return static_cast<uint32_t>((from * 8 + to) * 1000003u + call * 8191u + i * 2654435761u);
}

// Makes call `call`, whose kind and size follow from its number. Returns false when the group has ended. Sets
// `is_right` to false when a word is wrong.
inline bool Exchange(Collective* group, int call, std::atomic<bool>* is_right) {
  const int rank = group->rank(), size = group->size();
  const size_t words = 1 + static_cast<size_t>(call * 37 % 101) * (call % 7 == 0 ? 500 : 3);
  const bool gathers = call % 3 != 0;
  std::vector<uint32_t> sent(gathers ? words : words * size), received(words * size);
  for (size_t i = 0; i < sent.size(); ++i) {
    const int to = gathers ? -1 : static_cast<int>(i / words);
    sent[i] = Word(rank, to, call, i % words);
  }
  const size_t bytes = words * sizeof(uint32_t);
  const bool has_moved = gathers ? group->AllGather(sent.data(), bytes, received.data())
                                 : group->AllToAll(sent.data(), bytes, received.data());
  if (!has_moved) return false;
  for (size_t i = 0; i < received.size(); ++i) {
    const int from = static_cast<int>(i / words);
    if (received[i] != Word(from, gathers ? -1 : rank, call, i % words)) *is_right = false;
  }
  return true;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_COLLECTIVE_CALLS_H_
