#ifndef QUIRE_WORKER_MODEL_MAPPED_FILE_H_
#define QUIRE_WORKER_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

// A whole file mapped read-only; pages are read when touched. Whoever shortens the file meanwhile kills the process
// (SIGBUS): model directories are replaced, not rewritten. Move-only.
class MappedFile {
 public:
  // NOT_FOUND when there is no such file; INVALID_ARGUMENT when it is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid as long as this object (or the one it was moved to) lives.
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}

  void* data_;
  size_t size_;
};

// Lets the memory of the whole pages of `bytes` go, which are of a MappedFile. Who reads them again reads the file.
void ReleasePages(std::string_view bytes);

// Reads a small file whole. RESOURCE_EXHAUSTED when it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MAPPED_FILE_H_
