// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_WATCHED_FILE_H_
#define QUIRE_BASE_WATCHED_FILE_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace quire {

// A file that is read again when it changes, such as the one of --tokens. A thread of its own looks at it every second,
// so that a mistake is reported when it is made. While the file is missing or wrong, its former contents stay in use.
// The log has one line when that begins and one when the file is right again. Thread-safe.
class WatchedFile {
 public:
  struct Options {
    std::string flag;      // The flag that names the file, such as "tokens".
    std::string contents;  // What the file contains, for the log, such as "tokens".
    std::string path;
    // Takes the text of the file into use. Returns an error with the number of the line if the text is wrong, and then
    // changes nothing. An error that does not begin with the path gets it. Runs on the thread of this object and inside
    // Open and Check, never twice at once.
    std::function<absl::Status(absl::string_view text)> read;
    std::chrono::milliseconds interval = std::chrono::seconds(1);
  };

  // Reads the file. Returns INVALID_ARGUMENT with the path when it cannot be read or is wrong.
  static absl::StatusOr<std::unique_ptr<WatchedFile>> Open(Options options);

  // Afterwards `read` is not called any more.
  ~WatchedFile();

  // Looks at the file now.
  void Check() QUIRE_EXCLUDES(mutex_);

  // Returns true if the contents in use are the contents of the file at the last look.
  bool is_valid() const QUIRE_EXCLUDES(mutex_);
  const std::string& flag() const { return options_.flag; }

 private:
  // Distinguishes one state of the file from another: device, inode, size, and the time of the last change (seconds and
  // nanoseconds).
  using Version = std::array<int64_t, 5>;

  explicit WatchedFile(Options options) : options_(std::move(options)) {}

  Version ReadVersion() const;
  absl::Status Read(const Version& version) QUIRE_REQUIRES(mutex_);
  void Run() QUIRE_EXCLUDES(stop_mutex_);

  const Options options_;
  mutable Mutex mutex_;
  Version version_ QUIRE_GUARDED_BY(mutex_) = {};      // Of the text that was read last.
  absl::Status text_status_ QUIRE_GUARDED_BY(mutex_);  // Whether that text was right.
  // The last look at the file gave it. It is empty if the file is valid.
  std::string last_error_ QUIRE_GUARDED_BY(mutex_);
  Mutex stop_mutex_;
  CondVar stop_;
  bool is_stopping_ QUIRE_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_BASE_WATCHED_FILE_H_
