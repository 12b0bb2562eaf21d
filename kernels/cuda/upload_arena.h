// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_
#define QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"

namespace quire::cuda {

// Collects host arrays in pinned memory and copies them to the device in one piece. The memory is reused. There is one
// piece of device memory, whose address changes only when it grows. There are two pieces of host memory, so that the
// next arrays can be collected while the device still has to copy the previous ones. The device must outlive the arena.
class UploadArena {
 public:
  explicit UploadArena(Device* device, Recorded recorded = Recorded::kYes) : device_(device), recorded_(recorded) {}
  UploadArena(const UploadArena&) = delete;
  UploadArena& operator=(const UploadArena&) = delete;
  ~UploadArena() { FreeMemory(); }

  // Takes room for `bytes` and forgets the arrays, if there is less. Returns false, and has no room, when there is not
  // enough memory.
  bool Reserve(size_t bytes);
  // Forgets the arrays and makes room for `bytes`. Work that was queued before can still read the old arrays.
  void Begin(size_t bytes);

  // Returns the room that an array needs.
  template <typename T>
  static constexpr size_t BytesFor(size_t count) {
    return (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Room for an array: the place to write it now, and its place on the device for work that is queued after Upload.
  // REQUIRES: Begin has made room for it.
  template <typename T>
  struct Room {
    T* host;
    const T* device;
  };
  template <typename T>
  Room<T> Add(size_t count) {
    const size_t at = Take(BytesFor<T>(count));
    return {reinterpret_cast<T*>(sides_[side_].host + at), reinterpret_cast<const T*>(on_device_ + at)};
  }
  // Copies an array there, with room for at least `capacity` values. Returns its place on the device.
  template <typename T>
  const T* Add(const T* values, size_t count, size_t capacity = 0) {
    const Room<T> room = Add<T>(count > capacity ? count : capacity);
    if (count > 0) std::memcpy(static_cast<void*>(room.host), values, count * sizeof(T));
    return room.device;
  }

  // Queues the copy of everything that was added.
  void Upload();

 private:
  static constexpr size_t kAlignment = 16;

  struct Side {
    char* host = nullptr;
    bool is_used = false;  // A copy from it has been queued.
    uint64_t mark = 0;     // The mark after that copy.
  };

  size_t Take(size_t bytes);  // Returns the offset of the room.
  // Returns false, and has no memory, when there is not enough. REQUIRES: there is no memory.
  bool AllocateMemory(size_t bytes);
  void FreeMemory();

  Device* const device_;
  const Recorded recorded_;
  Side sides_[2];
  int side_ = 0;
  char* on_device_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_
