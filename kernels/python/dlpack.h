#ifndef QUIRE_KERNELS_PYTHON_DLPACK_H_
#define QUIRE_KERNELS_PYTHON_DLPACK_H_

#include <cstdint>

// The structures by which Python libraries lend each other arrays, as the DLPack specification 1.0 lays them out
// (dmlc.github.io/dlpack): the parts that this module uses.
//
// x.__dlpack__() returns a capsule that owns a managed tensor. It is named "dltensor", or "dltensor_versioned" when the
// tensor is a versioned one, which the consumer asks for by max_version=(1, 0). The consumer renames it to "used_..."
// and calls the tensor's deleter once, when it no longer reads the memory. A capsule that dies under its first name
// calls the deleter itself.
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
  uint16_t lanes;  // 1 but for vectors.
};

struct Tensor {
  void* data;
  Device device;
  int32_t num_dimensions;
  ElementType type;
  int64_t* shape;
  int64_t* strides;      // In elements; null: row-major without gaps.
  uint64_t byte_offset;  // From `data` to the first element.
};

// Before 1.0.
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
    uint32_t major;  // Another one has another layout behind `deleter`.
    uint32_t minor;
  } version;
  void* context;
  void (*deleter)(VersionedManagedTensor* self);  // May be null.
  uint64_t flags;                                 // Bit 0: read-only. Bit 1: a copy.
  Tensor tensor;
};

}  // namespace quire::dlpack

#endif  // QUIRE_KERNELS_PYTHON_DLPACK_H_
