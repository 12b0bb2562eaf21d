// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/memory.h"

#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

namespace quire::cpu {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

void* Map(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// Returns memory that begins at the beginning of a huge page. The system maps memory wherever there is room, so more is
// mapped, and what lies before and behind is given back.
void* MapHugePages(size_t bytes) {
  if (bytes > SIZE_MAX - 2 * kHugePageBytes) return nullptr;
  const size_t page_bytes = size_t(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  char* const data = static_cast<char*>(Map(bytes + kHugePageBytes - page_bytes));
  if (data == nullptr) return nullptr;
  const size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(data) % kHugePageBytes) % kHugePageBytes;
  const size_t behind = kHugePageBytes - page_bytes - before;
  if (before > 0) munmap(data, before);
  if (behind > 0) munmap(data + before + bytes, behind);
#if defined(MADV_HUGEPAGE)
  // This is only a hint. Weights and blocks are read in long runs, and huge pages avoid most of the address
  // translation.
  madvise(data + before, bytes, MADV_HUGEPAGE);
#endif
  return data + before;
}

}  // namespace

Memory::Memory(size_t bytes) {
  if (bytes == 0) bytes = 1;
  data_ = bytes >= kHugePageBytes ? MapHugePages(bytes) : Map(bytes);
  if (data_ != nullptr) bytes_ = bytes;
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

OutOfMemory::OutOfMemory(size_t bytes)
    : text_("the system does not give the " + std::to_string(bytes) + " bytes that a kernel needs for its inputs") {}

void* GrownTo(size_t bytes, Memory* memory) {
  if (memory->bytes() < bytes) {
    *memory = Memory(bytes);
    if (memory->data() == nullptr) throw OutOfMemory(bytes);
  }
  return memory->data();
}

}  // namespace quire::cpu
