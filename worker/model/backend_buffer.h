// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_BACKEND_BUFFER_H_
#define QUIRE_WORKER_MODEL_BACKEND_BUFFER_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory.h"

namespace quire {

// An allocation of device memory, which the destructor frees. Move-only, and null by default.
class BackendBuffer {
 public:
  BackendBuffer() = default;

  // Allocates zeroed memory of at least one byte. `use` names its use in the error. `device` must outlive the buffer.
  static absl::StatusOr<BackendBuffer> Allocate(DeviceMemory* device, size_t bytes, const char* use) {
    void* memory = device->Allocate(bytes > 0 ? bytes : 1);
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", use, ": ", bytes, " bytes"));
    }
    return BackendBuffer(device, memory);
  }

  BackendBuffer(BackendBuffer&& other) noexcept
      : device_(other.device_), memory_(std::exchange(other.memory_, nullptr)) {}
  BackendBuffer& operator=(BackendBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~BackendBuffer() {
    if (memory_ != nullptr) device_->Free(memory_);
  }

  void* get() const { return memory_; }
  float* floats() const { return static_cast<float*>(memory_); }

 private:
  BackendBuffer(DeviceMemory* device, void* memory) : device_(device), memory_(memory) {}

  DeviceMemory* device_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_BACKEND_BUFFER_H_
