// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_PROCESS_STATE_H_
#define QUIRE_TESTS_CHAOS_PROCESS_STATE_H_

#include <sys/types.h>

namespace quire {

// What a process holds, from /proc. All members are 0 when the process has ended.
struct ProcessState {
  pid_t pid = 0;
  double resident_mib = 0;
  int num_files = 0;  // Open file descriptors.
  int num_threads = 0;
};

ProcessState ReadProcessState(pid_t pid);

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_PROCESS_STATE_H_
