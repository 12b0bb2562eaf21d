#ifndef QUIRE_WORKER_MODEL_BACKEND_BUFFER_H_
#define QUIRE_WORKER_MODEL_BACKEND_BUFFER_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

namespace quire {

// Memory of a backend, freed on destruction. The backend must outlive it. Move-only; null by default.
class BackendBuffer {
 public:
  BackendBuffer() = default;

  // Zeroed memory of at least one byte. `what` names the use in the error.
  static absl::StatusOr<BackendBuffer> Allocate(Backend* backend, size_t bytes, const char* what) {
    void* memory = backend->Allocate(bytes > 0 ? bytes : 1);
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what, ": ", bytes, " bytes"));
    }
    return BackendBuffer(backend, memory);
  }

  BackendBuffer(BackendBuffer&& other) noexcept
      : backend_(other.backend_), memory_(std::exchange(other.memory_, nullptr)) {}
  BackendBuffer& operator=(BackendBuffer&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~BackendBuffer() {
    if (memory_ != nullptr) backend_->Free(memory_);
  }

  void* get() const { return memory_; }
  float* floats() const { return static_cast<float*>(memory_); }

 private:
  BackendBuffer(Backend* backend, void* memory) : backend_(backend), memory_(memory) {}

  Backend* backend_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_BACKEND_BUFFER_H_
