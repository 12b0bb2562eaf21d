#include "kernels/cuda/upload_arena.h"

#include <algorithm>

#include "kernels/cuda/fatal.h"

namespace quire::cuda {

void UploadArena::FreeMemory() {
  if (on_device_ == nullptr) return;
  device_->Synchronize();
  for (Side& side : sides_) {
    device_->FreeHost(side.host);
    side = {};
  }
  device_->Free(on_device_);
}

void UploadArena::Begin(size_t bytes) {
  size_ = 0;
  if (bytes > capacity_) {
    FreeMemory();
    capacity_ = std::max(bytes, 2 * capacity_);
    on_device_ = static_cast<char*>(device_->Allocate(capacity_));
    for (Side& side : sides_) side.host = static_cast<char*>(device_->AllocateHost(capacity_));
    if (on_device_ == nullptr || sides_[0].host == nullptr || sides_[1].host == nullptr) {
      Fatal("no memory for the arrays of a step: %zu bytes", capacity_);
    }
  }
  side_ = 1 - side_;
  if (sides_[side_].is_used) device_->Wait(sides_[side_].mark);
}

size_t UploadArena::Take(size_t bytes) {
  const size_t at = size_;
  size_ += bytes;
  if (size_ > capacity_) Fatal("an array of %zu bytes for which no room was made", bytes);
  return at;
}

void UploadArena::Upload() {
  device_->Copy(on_device_, sides_[side_].host, size_);
  sides_[side_].is_used = true;
  sides_[side_].mark = device_->Mark();
}

}  // namespace quire::cuda
