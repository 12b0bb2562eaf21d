// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_MAPPED_FILE_H_
#define QUIRE_WORKER_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

// A whole file, mapped read-only. Pages are read from disk when they are first accessed. If another process shortens
// the file, an access ends this process with SIGBUS, so model directories must be replaced and not rewritten.
// Move-only.
class MappedFile {
 public:
  // Returns NOT_FOUND when there is no such file, and INVALID_ARGUMENT when it is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // The bytes are valid while this object, or the one it was moved to, exists.
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}

  void* data_;
  size_t size_;
};

// Releases the memory of all pages that lie completely inside `bytes`, a part of a MappedFile. When they are accessed
// again, they are read from the file again.
void ReleasePages(std::string_view bytes);

// Reads a small file. Returns RESOURCE_EXHAUSTED when it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MAPPED_FILE_H_
