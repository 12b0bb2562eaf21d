// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_DEVICE_MEMORY_H_
#define QUIRE_KERNELS_DEVICE_MEMORY_H_

#include <cstddef>
#include <optional>

namespace quire {

// The memory of a device, and host memory that it copies fastest. One thread uses all but FreeBytes and TotalBytes.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // The bytes that are left for Allocate. Returns nothing when the device uses the memory of the host.
  virtual std::optional<size_t> FreeBytes() const = 0;
  // The size of the memory, used or free. Returns nothing when FreeBytes does.
  virtual std::optional<size_t> TotalBytes() const = 0;

  // Returns zeroed memory of the device, aligned to 64 bytes, or null when there is not enough.
  virtual void* Allocate(size_t bytes) = 0;
  // Waits for queued operations that may use the memory, and frees it.
  virtual void Free(void* memory) = 0;

  // Returns zeroed memory of the host, aligned to 64 bytes, or null when there is not enough. Operations may write it,
  // and SwapBlocks copies to and from it.
  virtual void* AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;

  // Each copies between memory of the host and memory of the device, and returns when the copy is done.
  virtual void CopyToDevice(void* destination, const void* source, size_t bytes) = 0;
  virtual void CopyToHost(void* destination, const void* source, size_t bytes) = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_DEVICE_MEMORY_H_
