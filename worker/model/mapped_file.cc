// SPDX-License-Identifier: Apache-2.0

#include "worker/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

// How a file begins that Git LFS has not downloaded yet.
constexpr std::string_view kGitLfsPointer = "version https://git-lfs";

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // Opening a FIFO must not block.
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    if (data == MAP_FAILED) {
      close(fd);
      return absl::ErrnoToStatus(error, absl::StrCat("cannot map ", path, ", ", size, " bytes"));
    }
  }
  close(fd);  // The mapping keeps the file open.
  MappedFile file(data, size);
  if (file.bytes().starts_with(kGitLfsPointer)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a pointer of Git LFS, and the file itself is not here; `git lfs pull` downloads it"));
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

void ReleasePages(std::string_view bytes) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " has ", file.bytes().size(), " bytes, at most ", max_bytes, " are read"));
  }
  return std::string(file.bytes());
}

}  // namespace quire
