// SPDX-License-Identifier: Apache-2.0

#include "base/watched_file.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "base/read_file.h"
#include "base/status.h"

namespace quire {

absl::StatusOr<std::unique_ptr<WatchedFile>> WatchedFile::Open(Options options) {
  std::unique_ptr<WatchedFile> file(new WatchedFile(std::move(options)));
  {
    const MutexLock lock(&file->mutex_);
    QUIRE_RETURN_IF_ERROR(file->Read(file->ReadVersion()));
  }
  file->thread_ = std::thread([self = file.get()] { self->Run(); });
  return file;
}

WatchedFile::~WatchedFile() {
  {
    const MutexLock lock(&stop_mutex_);
    is_stopping_ = true;
    stop_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void WatchedFile::Run() {
  while (true) {
    const auto next_check = std::chrono::steady_clock::now() + options_.interval;
    {
      const MutexLock lock(&stop_mutex_);
      while (!is_stopping_ && stop_.WaitUntil(&stop_mutex_, next_check)) {
      }
      if (is_stopping_) return;
    }
    Check();
  }
}

void WatchedFile::Check() {
  const MutexLock lock(&mutex_);
  const Version version = ReadVersion();
  const bool has_changed = version != version_;
  const absl::Status status = has_changed ? Read(version) : text_status_;
  const std::string previous_error = std::exchange(last_error_, std::string(status.message()));
  if (!status.ok()) {
    if (last_error_ == previous_error) return;
    QUIRE_LOG(kError) << "--" << options_.flag << ": " << last_error_ << "; the " << options_.contents
                      << " stay as they were";
  } else if (!previous_error.empty()) {
    QUIRE_LOG(kInfo) << "--" << options_.flag << ": " << options_.path << " is right again, its " << options_.contents
                     << " are in use";
  } else if (has_changed) {
    QUIRE_LOG(kInfo) << "read the " << options_.contents << " again from " << options_.path;
  }
}

bool WatchedFile::is_valid() const {
  const MutexLock lock(&mutex_);
  return last_error_.empty();
}

WatchedFile::Version WatchedFile::ReadVersion() const {
  struct stat file = {};
  if (stat(options_.path.c_str(), &file) != 0) return {};
  return {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino), file.st_size, file.st_mtim.tv_sec,
          file.st_mtim.tv_nsec};
}

absl::Status WatchedFile::Read(const Version& version) {
  const absl::StatusOr<std::string> text = ReadFile(options_.path);
  // A text that was read is not read again until the file changes, even if it is wrong. A file that could not be read
  // is tried again.
  if (!text.ok()) return InvalidArgument(text.status().message());
  version_ = version;
  text_status_ = options_.read(*text);
  const bool names_file = absl::StartsWith(text_status_.message(), options_.path);
  if (!text_status_.ok() && !names_file) {
    text_status_ = InvalidArgument(options_.path, ": ", text_status_.message());
  }
  return text_status_;
}

}  // namespace quire
