// SPDX-License-Identifier: Apache-2.0

#include "launcher/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {
namespace {

constexpr absl::string_view kPrefix = "quire.";
constexpr size_t kNumRandom = 6;  // Of mkdtemp.
constexpr char kLock[] = "/lock";

absl::Status CannotMake(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot make the folder ", path, ": ", std::strerror(errno)));
}

bool IsOwnFolder(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// Removes the folder unless its process lives, or it has no lock because it was kept, or is only just made.
void RemoveIfAbandoned(const std::string& path) {
  const int fd = open(absl::StrCat(path, kLock).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;
  std::error_code error;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(path, error);
  close(fd);
}

void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!absl::StartsWith(name, kPrefix) || name.size() != kPrefix.size() + kNumRandom) continue;
    if (IsOwnFolder(entry->path())) RemoveIfAbandoned(entry->path());
  }
}

}  // namespace

RunFolder::~RunFolder() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status RunFolder::Make(const std::string& parent) {
  RemoveAbandoned(parent);
  std::string path = absl::StrCat(parent, "/", kPrefix, std::string(kNumRandom, 'X'));
  if (mkdtemp(path.data()) == nullptr) return CannotMake(path);
  path_ = path;
  // It gets its name when it is locked, so nobody finds it without an owner.
  const std::string lock = path_ + kLock;
  const std::string unlocked = lock + ".new";
  lock_fd_ = open(unlocked.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (lock_fd_ >= 0 && flock(lock_fd_, LOCK_EX) == 0 && std::rename(unlocked.c_str(), lock.c_str()) == 0) {
    return absl::OkStatus();
  }
  const absl::Status error = CannotMake(path_);
  Remove();
  return error;
}

void RunFolder::Remove() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

void RunFolder::Keep() {
  if (!path_.empty()) unlink((path_ + kLock).c_str());
}

}  // namespace quire
