// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_HOST_MEMORY_H_
#define QUIRE_WORKER_HOST_MEMORY_H_

#include <cstdint>
#include <string>

namespace quire {

// Returns the number of bytes that this process may still allocate without being killed. It is the smaller of two
// numbers: the available memory in /proc/meminfo, and the distance to the limit of its memory cgroup (version 1 or 2,
// the lowest limit on the path to the root). Page cache that the kernel can drop counts as available. Returns 0 when
// nothing can be read. Tests set `root` to a directory that takes the place of "/".
int64_t AvailableHostMemory(const std::string& root = "");

}  // namespace quire

#endif  // QUIRE_WORKER_HOST_MEMORY_H_
