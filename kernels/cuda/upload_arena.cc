#include "kernels/cuda/upload_arena.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/fatal.h"

namespace quire::cuda {

UploadArena::~UploadArena() {
  FreeMemory();
}

void UploadArena::FreeMemory() {
  if (host_ != nullptr) device_->FreeHost(host_);
  if (on_device_ != nullptr) device_->Free(on_device_);
}

void UploadArena::Begin(size_t bytes) {
  if (is_in_use_) device_->Synchronize();
  is_in_use_ = false;
  size_ = 0;
  if (bytes <= capacity_) return;
  FreeMemory();
  capacity_ = std::max(bytes, 2 * capacity_);
  host_ = static_cast<char*>(device_->AllocateHost(capacity_));
  on_device_ = static_cast<char*>(device_->Allocate(capacity_));
  if (host_ == nullptr || on_device_ == nullptr) {
    Fatal("no memory for the arrays of a step: %zu bytes", capacity_);
  }
}

const void* UploadArena::AddBytes(const void* values, size_t bytes) {
  const size_t at = size_;
  size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (size_ > capacity_) {
    Fatal("an array of %zu bytes for which no room was made", bytes);
  }
  if (bytes > 0) std::memcpy(host_ + at, values, bytes);
  return on_device_ + at;
}

void UploadArena::Upload() {
  device_->Copy(on_device_, host_, size_);
  is_in_use_ = true;
}

}  // namespace quire::cuda
