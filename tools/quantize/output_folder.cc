// SPDX-License-Identifier: Apache-2.0

#include "tools/quantize/output_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire::quantize {
namespace {

constexpr char kUnfinished[] = ".unfinished";

absl::Status CannotWrite(const std::string& path, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", why));
}

}  // namespace

absl::Status OutputFolder::Make() {
  std::error_code error;
  is_new_ = !std::filesystem::exists(path_, error);
  std::filesystem::create_directories(path_, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", path_, ": ", error.message()));
  const bool is_empty = std::filesystem::is_empty(path_, error);
  if (!error && is_empty) return absl::OkStatus();
  return InvalidArgument("the folder ", path_, " is not empty");
}

absl::Status OutputFolder::Write(const std::string& name, absl::FunctionRef<absl::Status(std::ostream&)> write) {
  std::ofstream out(BeginFile(name), std::ios::binary | std::ios::trunc);
  if (out.good()) QUIRE_RETURN_IF_ERROR(write(out));
  if (out.good()) out.close();
  if (!out.good()) return CannotWrite(PathOf(name), std::strerror(errno));  // The system has left the reason there.
  return EndFile(name);
}

absl::Status OutputFolder::WriteText(const std::string& name, const std::string& text) {
  return Write(name, [&](std::ostream& out) {
    out << text;
    return absl::OkStatus();
  });
}

absl::Status OutputFolder::Copy(const std::string& from, const std::string& name) {
  std::error_code error;
  std::filesystem::copy_file(from, BeginFile(name), error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot copy ", name, ": ", error.message()));
  return EndFile(name);
}

void OutputFolder::RemoveFiles() const {
  std::error_code error;
  for (const std::string& name : names_) {
    std::filesystem::remove(PathOf(name), error);
    std::filesystem::remove(PathOf(name) + kUnfinished, error);
  }
  if (is_new_) std::filesystem::remove(path_, error);
}

std::string OutputFolder::BeginFile(const std::string& name) {
  names_.push_back(name);
  return PathOf(name) + kUnfinished;
}

absl::Status OutputFolder::EndFile(const std::string& name) const {
  std::error_code error;
  std::filesystem::rename(PathOf(name) + kUnfinished, PathOf(name), error);
  return error ? CannotWrite(PathOf(name), error.message()) : absl::OkStatus();
}

}  // namespace quire::quantize
