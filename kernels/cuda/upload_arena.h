#ifndef QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_
#define QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_

#include <cstddef>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// Arrays of the host on their way to the device: collected in pinned memory, and copied in one piece. Keeps its memory
// from use to use; the device's is one piece, whose address changes only when it grows. The device must outlive it.
class UploadArena {
 public:
  explicit UploadArena(Device* device) : device_(device) {}
  UploadArena(const UploadArena&) = delete;
  UploadArena& operator=(const UploadArena&) = delete;
  ~UploadArena();

  // Forgets the arrays, and waits for work that may still read them. Makes room for `bytes`.
  void Begin(size_t bytes);

  // The room that an array needs.
  template <typename T>
  static size_t BytesFor(size_t count) {
    return (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Copies an array; returns where it will be on the device after Upload. REQUIRES: Begin has made room for it.
  template <typename T>
  const T* Add(const T* values, size_t count) {
    return static_cast<const T*>(AddBytes(values, count * sizeof(T)));
  }

  // Queues the copy of everything that was added.
  void Upload();

 private:
  static constexpr size_t kAlignment = 16;

  const void* AddBytes(const void* values, size_t bytes);
  void FreeMemory();

  Device* const device_;
  char* host_ = nullptr;
  char* on_device_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
  bool is_in_use_ = false;  // Work that reads the arrays may have been queued.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_
