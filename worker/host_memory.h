#ifndef QUIRE_WORKER_HOST_MEMORY_H_
#define QUIRE_WORKER_HOST_MEMORY_H_

#include <cstdint>
#include <string>

namespace quire {

// Bytes that this process may still take without being killed: what /proc/meminfo calls available, or what is left
// below the limit of its memory cgroup (version 1 or 2, the tightest one on the path to the root), whichever is less.
// Page cache that the kernel can drop counts as available. 0 when nothing can be read. `root` stands for "/" in tests.
int64_t AvailableHostMemory(const std::string& root = "");

}  // namespace quire

#endif  // QUIRE_WORKER_HOST_MEMORY_H_
