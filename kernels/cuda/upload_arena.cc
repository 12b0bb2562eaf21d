// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/upload_arena.h"

#include <algorithm>

#include "kernels/cuda/fatal.h"

namespace quire::cuda {

bool UploadArena::AllocateMemory(size_t bytes) {
  on_device_ = static_cast<char*>(device_->Allocate(bytes));
  for (Side& side : sides_) side.host = static_cast<char*>(device_->AllocateHost(bytes));
  capacity_ = bytes;
  if (on_device_ != nullptr && sides_[0].host != nullptr && sides_[1].host != nullptr) return true;
  FreeMemory();
  return false;
}

void UploadArena::FreeMemory() {
  if (capacity_ == 0) return;
  device_->Synchronize();  // Queued work may still use the memory.
  for (Side& side : sides_) {
    if (side.host != nullptr) device_->FreeHost(side.host);
    side = {};
  }
  if (on_device_ != nullptr) FreeOnDevice(device_, on_device_, recorded_);
  on_device_ = nullptr;
  capacity_ = 0;
}

bool UploadArena::Reserve(size_t bytes) {
  if (bytes <= capacity_) return true;
  FreeMemory();
  return AllocateMemory(bytes);
}

void UploadArena::Begin(size_t bytes) {
  size_ = 0;
  if (bytes > capacity_ && !Reserve(std::max(bytes, 2 * capacity_)) && !Reserve(bytes)) {
    Fatal("no memory for the arrays of a step: %zu bytes", bytes);
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
