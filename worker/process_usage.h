#ifndef QUIRE_WORKER_PROCESS_USAGE_H_
#define QUIRE_WORKER_PROCESS_USAGE_H_

#include <cstdint>

namespace quire {

// What this process takes from the machine, as Prometheus' own clients report it.
struct ProcessUsage {
  double cpu_seconds;         // User and system.
  int64_t resident_bytes;     // 0 when unknown.
  double start_time_seconds;  // Since the Unix epoch; 0 when unknown.
};

ProcessUsage ReadProcessUsage();

}  // namespace quire

#endif  // QUIRE_WORKER_PROCESS_USAGE_H_
