// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_SAFETENSORS_H_
#define QUIRE_WORKER_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/mapped_file.h"
#include "worker/model/tensor.h"

namespace quire {

// One .safetensors file. It begins with the length of its header (8 bytes, little-endian). Then come the JSON header,
// which has the type, shape and byte range of every tensor, and the bytes of the tensors. Opening a file checks that
// the ranges cover it without holes and overlaps, and that the length of each range matches its type and shape.
class SafetensorsFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // Limit of the reference implementation.

  // Error messages begin with the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // The tensors in the order of their bytes. They are valid while this object, or the one it was moved to, exists.
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  SafetensorsFile(MappedFile file, std::vector<Tensor> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  std::vector<Tensor> tensors_;
};

// Parses the contents of a .safetensors file, which error messages call `name`. The tensors point into `contents`.
absl::StatusOr<std::vector<Tensor>> ParseSafetensors(std::string_view contents, const std::string& name);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_SAFETENSORS_H_
