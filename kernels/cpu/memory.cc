// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/memory.h"

#include <cstdint>
#include <new>

#include <sys/mman.h>

namespace quire::cpu {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;

void* Map(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// Returns memory that begins at the beginning of a huge page. The system maps memory wherever there is room, so more is
// mapped, and what lies before and behind is given back.
void* MapHugePages(size_t bytes) {
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  char* const data = static_cast<char*>(Map(bytes + kHugePageBytes - kPageBytes));
  if (data == nullptr) return nullptr;
  const size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(data) % kHugePageBytes) % kHugePageBytes;
  const size_t behind = kHugePageBytes - kPageBytes - before;
  if (before > 0) munmap(data, before);
  if (behind > 0) munmap(data + before + bytes, behind);
  return data + before;
}

}  // namespace

Memory::Memory(size_t bytes) {
  if (bytes == 0) bytes = 1;
#if defined(MADV_HUGEPAGE)
  if (bytes >= kHugePageBytes) {
    data_ = MapHugePages(bytes);
    // This is only a hint. Weights and blocks are read in long runs, and huge pages avoid most of the address
    // translation.
    if (data_ != nullptr) madvise(data_, bytes, MADV_HUGEPAGE);
  } else {
    data_ = Map(bytes);
  }
#else
  data_ = Map(bytes);
#endif
  if (data_ != nullptr) bytes_ = bytes;
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void* GrownTo(size_t bytes, Memory* memory) {
  if (memory->bytes() < bytes) {
    *memory = Memory(bytes);
    if (memory->data() == nullptr) throw std::bad_alloc();
  }
  return memory->data();
}

}  // namespace quire::cpu
