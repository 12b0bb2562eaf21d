// SPDX-License-Identifier: Apache-2.0

#include "base/read_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

absl::Status CannotRead(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot read ", path, ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // A stream would not distinguish an empty file from an error, and it throws an exception for a directory.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) return CannotRead(path, errno);
  std::string text;
  char part[4096];
  for (size_t size; (size = std::fread(part, 1, sizeof(part), file.get())) > 0;) text.append(part, size);
  if (std::ferror(file.get()) != 0) return CannotRead(path, errno);
  return text;
}

}  // namespace quire
