#ifndef QUIRE_WORKER_STAGED_ARRAY_H_
#define QUIRE_WORKER_STAGED_ARRAY_H_

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "worker/model/backend_buffer.h"

namespace quire {

// An array that is filled on the host and then uploaded to the backend. The backend's memory grows when it must and is
// kept for the next step. Owned by the executor thread; the backend must outlive it.
template <typename T>
class StagedArray {
 public:
  StagedArray(Backend* backend, const char* what) : backend_(backend), what_(what) {}

  absl::Status Reserve(size_t size) {
    if (size <= capacity_) return absl::OkStatus();
    const size_t capacity = std::max(size, 2 * capacity_);
    QUIRE_ASSIGN_OR_RETURN(memory_, BackendBuffer::Allocate(backend_, capacity * sizeof(T), what_));
    capacity_ = capacity;
    host_.reserve(capacity);
    return absl::OkStatus();
  }

  // Makes data() hold what host() holds.
  absl::Status Upload() {
    QUIRE_RETURN_IF_ERROR(Reserve(host_.size()));
    if (!host_.empty()) backend_->CopyToDevice(memory_.get(), host_.data(), host_.size() * sizeof(T));
    return absl::OkStatus();
  }

  std::vector<T>& host() { return host_; }
  const T* data() const { return static_cast<const T*>(memory_.get()); }  // Backend memory.

 private:
  Backend* const backend_;
  const char* const what_;
  std::vector<T> host_;
  BackendBuffer memory_;
  size_t capacity_ = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_STAGED_ARRAY_H_
