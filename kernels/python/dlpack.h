// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PYTHON_DLPACK_H_
#define QUIRE_KERNELS_PYTHON_DLPACK_H_

#include <cstdint>

// The structures by which Python libraries lend arrays to each other. They follow the DLPack specification 1.0
// (dmlc.github.io/dlpack), as far as this module uses it.
//
// x.__dlpack__() returns a capsule that owns a managed tensor. The capsule's name is "dltensor", or
// "dltensor_versioned" for a versioned tensor, which the consumer requests with max_version=(1, 0). The consumer
// renames the capsule to "used_..." and calls the tensor's deleter once, when it no longer reads the memory. A capsule
// that is destroyed under its first name calls the deleter itself.
namespace quire::dlpack {

constexpr int32_t kCpu = 1, kCuda = 2, kCudaManaged = 13;               // Device types.
constexpr uint8_t kSigned = 0, kUnsigned = 1, kFloat = 2, kBFloat = 4;  // Type codes.

struct Device {
  int32_t type;
  int32_t index;
};

struct ElementType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;  // 1 except for vectors.
};

struct Tensor {
  void* data;
  Device device;
  int32_t num_dimensions;
  ElementType type;
  int64_t* shape;
  int64_t* strides;      // In elements; null means row-major and contiguous.
  uint64_t byte_offset;  // Distance from `data` to the first element.
};

// The form of DLPack versions before 1.0.
struct ManagedTensor {
  static constexpr const char* kName = "dltensor";
  static constexpr const char* kUsedName = "used_dltensor";

  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);  // May be null.
};

struct VersionedManagedTensor {
  static constexpr const char* kName = "dltensor_versioned";
  static constexpr const char* kUsedName = "used_dltensor_versioned";

  struct {
    uint32_t major;  // With another major version, the fields after `deleter` have a different layout.
    uint32_t minor;
  } version;
  void* context;
  void (*deleter)(VersionedManagedTensor* self);  // May be null.
  uint64_t flags;                                 // Bit 0: read-only. Bit 1: a copy.
  Tensor tensor;
};

}  // namespace quire::dlpack

#endif  // QUIRE_KERNELS_PYTHON_DLPACK_H_
