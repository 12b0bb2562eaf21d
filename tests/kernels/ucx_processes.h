// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_UCX_PROCESSES_H_
#define QUIRE_TESTS_KERNELS_UCX_PROCESSES_H_

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "kernels/ucx/ucx_group.h"

namespace quire::ucx {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRanks = 4;
// The groups of a test end one after the other, and one of them may be tried again meanwhile.
constexpr int kPatienceMs = 100'000;

// The address of a rank in a group.
struct Place {
  std::atomic<size_t> length = 0;  // 0: not there yet.
  std::array<char, 4096> address;
};

// Memory that the processes of a group share, in the place of a manager: addresses of two groups, one after the other,
// and what becomes of a group that loses a rank.
struct Board {
  std::array<std::array<Place, kMaxRanks>, 2> places;
  std::atomic<int64_t> trouble = 0;  // When the victim was lost, in nanoseconds.
  std::array<std::atomic<int64_t>, kMaxRanks> left = {};
  std::array<std::atomic<int64_t>, kMaxRanks> delay = {};  // By which a thread of a rank has been late.
  std::array<std::array<char, 200>, kMaxRanks> reason = {};
};

inline int64_t Now() {
  return Clock::now().time_since_epoch().count();
}

inline Board* NewBoard() {
  void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Board;
}

inline void FreeBoard(Board* board) {
  munmap(board, sizeof(Board));
}

// Opens a rank, and joins the others of group `index`. Null when that fails.
inline std::unique_ptr<UcxGroup> Join(const GroupTransport& transport, Board* board, int index, int rank, int size,
                                      const GroupKey& key = {}) {
  std::string why_not;
  auto group = UcxGroup::Open(transport, &why_not);
  if (group == nullptr) {
    fprintf(stderr, "%s\n", why_not.c_str());
    return nullptr;
  }
  Place& own = board->places[index][rank];
  if (group->address().size() > own.address.size()) return nullptr;
  memcpy(own.address.data(), group->address().data(), group->address().size());
  own.length = group->address().size();
  std::vector<std::string> addresses(size);
  const auto end = Clock::now() + std::chrono::milliseconds(kPatienceMs);
  for (int r = 0; r < size; ++r) {
    const Place& place = board->places[index][r];
    while (place.length == 0) {
      if (Clock::now() > end) return nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    addresses[r].assign(place.address.data(), place.length);
  }
  if (!group->Join(rank, addresses, key)) {
    fprintf(stderr, "rank %d: %s\n", rank, group->Status().message().c_str());
    return nullptr;
  }
  return group;
}

// Runs body() in a process of its own, whose exit status it returns.
template <typename Body>
pid_t Start(const Body& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}

inline int StatusOf(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace quire::ucx

#endif  // QUIRE_TESTS_KERNELS_UCX_PROCESSES_H_
