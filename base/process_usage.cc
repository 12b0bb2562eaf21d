// SPDX-License-Identifier: Apache-2.0

#include "base/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace quire {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Returns the second number of /proc/self/statm, which is in pages.
int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  if (!(in >> size >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

// Returns the time at which the machine started, in seconds since the epoch: line "btime" of /proc/stat.
int64_t BootTime() {
  std::ifstream in("/proc/stat");
  std::string line;
  int64_t time = 0;
  while (std::getline(in, line)) {
    if (std::sscanf(line.c_str(), "btime %" SCNd64, &time) == 1) return time;
  }
  return 0;
}

// Returns field 22 of /proc/self/stat, in clock ticks since the machine started. Field 2, the name, may contain spaces
// and ends with the last ')'.
double StartTime() {
  std::ifstream in("/proc/self/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(')');
  const int64_t boot_time = BootTime();
  if (name_end == std::string::npos || boot_time == 0) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return static_cast<double>(boot_time) +
         std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  static const double start_time = StartTime();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime),
          .resident_bytes = ResidentBytes(),
          .start_time_seconds = start_time};
}

}  // namespace quire
