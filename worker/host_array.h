#ifndef QUIRE_WORKER_HOST_ARRAY_H_
#define QUIRE_WORKER_HOST_ARRAY_H_

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

namespace quire {

// An array of plain values in memory of Backend::AllocateHost, for operations to write. Grows, and loses its values
// then. The backend must outlive it.
template <typename T>
class HostArray {
 public:
  // `what` names the use in the error.
  HostArray(Backend* backend, const char* what) : backend_(backend), what_(what) {}
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;
  ~HostArray() { Free(); }

  // RESOURCE_EXHAUSTED when there is not enough memory: the array is empty then. REQUIRES: no operation is under way
  // that writes it.
  absl::Status Reserve(size_t size) {
    if (size <= capacity_) return absl::OkStatus();
    const size_t capacity = std::max(size, 2 * capacity_);
    Free();
    data_ = static_cast<T*>(backend_->AllocateHost(capacity * sizeof(T)));
    if (data_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what_, ": ", capacity * sizeof(T), " bytes"));
    }
    capacity_ = capacity;
    return absl::OkStatus();
  }

  T* data() const { return data_; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  void Free() {
    if (data_ != nullptr) backend_->FreeHost(data_);
    data_ = nullptr;
    capacity_ = 0;
  }

  Backend* const backend_;
  const char* const what_;
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_HOST_ARRAY_H_
