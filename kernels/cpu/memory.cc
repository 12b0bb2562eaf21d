// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/memory.h"

#include <new>

#include <sys/mman.h>

namespace quire::cpu {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Memory::Memory(size_t bytes) {
  if (bytes == 0) bytes = 1;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return;
#if defined(MADV_HUGEPAGE)
  // This is only a hint. Weights and blocks are read in long runs, and huge pages avoid most of the address
  // translation.
  if (bytes >= kHugePageBytes) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  data_ = data;
  bytes_ = bytes;
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
