#ifndef QUIRE_KERNELS_CPU_MEMORY_H_
#define QUIRE_KERNELS_CPU_MEMORY_H_

#include <cstddef>
#include <utility>

namespace quire::cpu {

// Zeroed memory from the operating system, aligned to a page at least and backed by huge pages where it has them. Pages
// that nobody has written cost nothing yet. Move-only; an empty Memory has data() == nullptr.
class Memory {
 public:
  Memory() = default;
  // Empty when there is not enough memory.
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

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_MEMORY_H_
