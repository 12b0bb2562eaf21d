#ifndef QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_
#define QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// Arrays of the host on their way to the device: collected in pinned memory, and copied in one piece. Keeps its memory
// from use to use. The device's is one piece, whose address changes only when it grows; of the host's there are two, so
// that the next arrays may be collected while the device still has those before them to copy. The device must outlive
// it.
class UploadArena {
 public:
  explicit UploadArena(Device* device) : device_(device) {}
  UploadArena(const UploadArena&) = delete;
  UploadArena& operator=(const UploadArena&) = delete;
  ~UploadArena() { FreeMemory(); }

  // Forgets the arrays; work that was queued before goes on reading them. Makes room for `bytes`.
  void Begin(size_t bytes);

  // The room that an array needs.
  template <typename T>
  static constexpr size_t BytesFor(size_t count) {
    return (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Room for an array: where to write it now, and where it is on the device for what is queued after Upload.
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
  // Copies an array there, with room for `capacity` values if that is more; returns where it is on the device.
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
    bool is_used = false;  // A copy from it was queued,
    uint64_t mark = 0;     // before this.
  };

  size_t Take(size_t bytes);  // Where the room begins.
  void FreeMemory();

  Device* const device_;
  Side sides_[2];
  int side_ = 0;
  char* on_device_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_UPLOAD_ARENA_H_
