// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_PROCESS_USAGE_H_
#define QUIRE_BASE_PROCESS_USAGE_H_

#include <cstdint>

namespace quire {

// The resources that this process uses, as in the process metrics of Prometheus' client libraries.
struct ProcessUsage {
  double cpu_seconds;         // User and system time.
  int64_t resident_bytes;     // 0 when unknown.
  double start_time_seconds;  // Counted from the Unix epoch; 0 when unknown.
};

ProcessUsage ReadProcessUsage();

}  // namespace quire

#endif  // QUIRE_BASE_PROCESS_USAGE_H_
