// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_GGUF_WRITER_H_
#define QUIRE_TESTS_WORKER_MODEL_GGUF_WRITER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "worker/model/gguf.h"

namespace quire {

// Writes GGUF files of version 3 for tests.
class GgufWriter {
 public:
  void AddUint32(std::string_view key, uint32_t value) { Add(key, GgufType::kUint32, Bytes(value)); }
  void AddFloat(std::string_view key, float value) { Add(key, GgufType::kFloat32, Bytes(value)); }
  void AddBool(std::string_view key, bool value) { Add(key, GgufType::kBool, Bytes(value)); }
  void AddString(std::string_view key, std::string_view value) { Add(key, GgufType::kString, String(value)); }
  void AddStrings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = Bytes(GgufType::kString) + Bytes(uint64_t{values.size()});
    for (const std::string& value : values) bytes += String(value);
    Add(key, GgufType::kArray, bytes);
  }
  void AddInts(std::string_view key, const std::vector<int32_t>& values) {
    std::string bytes = Bytes(GgufType::kInt32) + Bytes(uint64_t{values.size()});
    for (const int32_t value : values) bytes += Bytes(value);
    Add(key, GgufType::kArray, bytes);
  }
  // A value of any type, in the form of the file.
  void Add(std::string_view key, GgufType type, const std::string& bytes) {
    metadata_ += String(key) + Bytes(type) + bytes;
    ++num_entries_;
  }

  // `type` is the number of the type, and `shape` has the fastest dimension last.
  void AddTensor(std::string_view name, uint32_t type, const std::vector<int64_t>& shape, std::string_view bytes) {
    AddTensorAt(name, type, shape, data_.size());
    data_ += bytes;
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment);
  }
  void AddTensorAt(std::string_view name, uint32_t type, const std::vector<int64_t>& shape, uint64_t offset) {
    tensors_ += String(name) + Bytes(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) tensors_ += Bytes(shape[i]);
    tensors_ += Bytes(type) + Bytes(offset);
    ++num_tensors_;
  }

  std::string File() const {
    std::string file = "GGUF" + Bytes(uint32_t{3}) + Bytes(num_tensors_) + Bytes(num_entries_) + metadata_ + tensors_;
    file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment);
    return file + data_;
  }

  template <typename T>
  static std::string Bytes(const T& value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  }

 private:
  static constexpr size_t kAlignment = 32;

  static std::string String(std::string_view text) { return Bytes(uint64_t{text.size()}) + std::string(text); }

  std::string metadata_;
  std::string tensors_;
  std::string data_;
  uint64_t num_entries_ = 0;
  uint64_t num_tensors_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_GGUF_WRITER_H_
