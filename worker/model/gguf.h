// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_H_
#define QUIRE_WORKER_MODEL_GGUF_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/mapped_file.h"
#include "worker/model/tensor.h"

namespace quire {

// The types of metadata values, with the numbers that the file has.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// A value of the metadata. All views point into the file.
struct GgufValue {
  GgufType type;                          // Type of the elements, when the value is an array.
  bool is_array = false;                  // A value that is not an array has one element.
  uint64_t count = 1;                     // The number of elements.
  std::string_view bytes;                 // [count] elements, little-endian and not aligned. It is empty for strings.
  std::vector<std::string_view> strings;  // [count] for strings. They may have any bytes.
};

// The contents of a GGUF file.
struct GgufContents {
  std::map<std::string, GgufValue> metadata;
  // With the names of the file and the types "F32", "Q4_0" and so on (gguf_types.h lists them). The first dimension is
  // the slowest one, as in safetensors; the file stores shapes the other way round.
  std::vector<Tensor> tensors;
};

// Parses a GGUF file of version 2 or 3, the format of llama.cpp: the magic bytes, the version, two counts, the
// metadata, the description of the tensors, padding, and the bytes of the tensors. Every offset, count and length is
// checked. An error is one line with `name`, the key or the tensor, its value and the limit. A tensor of a type that is
// not supported is refused with the list of those that are. The result points into `contents`.
absl::StatusOr<GgufContents> ParseGguf(std::string_view contents, const std::string& name);

// A mapped GGUF file, or all files of a model in several parts. Move-only.
class GgufFile {
 public:
  // `path` is the file or the first part, whose name ends in "-00001-of-00003.gguf". The other parts must be beside it.
  // Error messages call a file by its path.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  // The metadata of the first part, and the tensors of all. Valid while this object, or the one it was moved to,
  // exists.
  const GgufContents& contents() const { return contents_; }
  const std::string& path() const { return path_; }
  int num_files() const { return static_cast<int>(files_.size()); }

 private:
  explicit GgufFile(std::string path) : path_(std::move(path)) {}

  // Opens the other parts if there are any.
  absl::Status AddParts();

  std::vector<MappedFile> files_;
  GgufContents contents_;
  std::string path_;
};

// Returns whether the path names a GGUF file: it ends in ".gguf", or it is a file that begins with the magic bytes.
bool IsGgufPath(const std::string& path);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_H_
