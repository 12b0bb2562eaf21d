#ifndef QUIRE_WORKER_MODEL_TENSOR_VALUES_H_
#define QUIRE_WORKER_MODEL_TENSOR_VALUES_H_

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/types.h"

namespace quire {

// Appends the numbers of a little-endian array, at any address. REQUIRES: bytes.size() is a multiple of SizeOf(type).
void AppendAsFloat(std::string_view bytes, DataType type, std::vector<float>* values);

// A file's bytes at an address that any element type may have: in place when they are aligned to 4 bytes (as a rule),
// otherwise a copy. The bytes are borrowed.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::string_view bytes);

  const void* data() const { return data_; }

 private:
  std::unique_ptr<char[]> copy_;
  const void* data_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TENSOR_VALUES_H_
