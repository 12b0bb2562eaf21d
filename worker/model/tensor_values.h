// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_TENSOR_VALUES_H_
#define QUIRE_WORKER_MODEL_TENSOR_VALUES_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/types.h"

namespace quire {

// Appends the numbers of a little-endian array, which need not be aligned. REQUIRES: bytes.size() is a multiple of
// SizeOf(type).
void AppendAsFloat(std::string_view bytes, DataType type, std::vector<float>* values);

// Returns the index of the first number that is infinite or not a number. It costs about one read of the memory.
// REQUIRES: as for AppendAsFloat.
std::optional<size_t> FirstNotFinite(std::string_view bytes, DataType type);

// Return whether all numbers are 0, in any type, or exactly 1.
bool IsAllZero(std::string_view bytes);
bool IsAllOne(std::string_view bytes, DataType type);

// Bytes of a file at an address that is aligned for every element type. If the original bytes are aligned to 4 bytes,
// which is usual, they are used in place; otherwise they are copied. The original bytes must outlive the object.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::string_view bytes);
  explicit AlignedBytes(std::unique_ptr<char[]> bytes) : copy_(std::move(bytes)), data_(copy_.get()) {}

  const void* data() const { return data_; }

 private:
  std::unique_ptr<char[]> copy_;
  const void* data_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TENSOR_VALUES_H_
