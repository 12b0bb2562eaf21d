#ifndef QUIRE_WORKER_MODEL_SAFETENSORS_H_
#define QUIRE_WORKER_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/types.h"
#include "worker/model/mapped_file.h"

namespace quire {

// A tensor inside a mapped file, row-major, little-endian; not necessarily aligned. Borrowed from the mapping.
struct Tensor {
  std::string name;
  std::string dtype;  // As written: "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;
  std::string_view bytes;
};

// "F32 [512, 64]".
std::string Describe(const Tensor& tensor);

// The element type, if it is one that weights may have.
std::optional<DataType> WeightType(const Tensor& tensor);

// One .safetensors file: 8 bytes of header length (little-endian), a JSON header that gives every tensor's type, shape
// and byte range, then the bytes. Opening checks everything that a reader relies on: the ranges cover the file without
// a hole or an overlap, and each is exactly as long as its type and shape say.
class SafetensorsFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // The limit of the reference implementation.

  // `name` stands for the file in error messages.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path, const std::string& name);

  // In the order of their bytes. Views are valid while this object (or the one it was moved to) lives.
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  SafetensorsFile(MappedFile file, std::vector<Tensor> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  std::vector<Tensor> tensors_;
};

// Parses the contents of a .safetensors file; the tensors point into `contents`.
absl::StatusOr<std::vector<Tensor>> ParseSafetensors(std::string_view contents, const std::string& name);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_SAFETENSORS_H_
