// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_MEMORY_H_
#define QUIRE_KERNELS_CPU_MEMORY_H_

#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace quire::cpu {

// Zeroed memory from the operating system. It is aligned to at least a page and backed by huge pages where the system
// has them. Pages that have not been written use no physical memory. Move-only; an empty Memory has data() == nullptr.
class Memory {
 public:
  Memory() = default;
  // The object is empty when there is not enough memory.
  explicit Memory(size_t bytes);
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// GrownTo throws it. The text has the size, so that a process which ends because of it says how much was missing.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t bytes);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  const std::string text_;
};

// Replaces the memory if it has less than `bytes` bytes, and returns it. Throws OutOfMemory when the system does not
// give it, as containers throw std::bad_alloc.
void* GrownTo(size_t bytes, Memory* memory);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_MEMORY_H_
