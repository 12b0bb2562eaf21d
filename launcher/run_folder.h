// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_RUN_FOLDER_H_
#define QUIRE_LAUNCHER_RUN_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace quire {

// The folder of one `quire serve`, with its sockets and logs: $TMPDIR/quire.XXXXXX. A file in it is locked as long as
// this process lives, so that the next one can tell the folder of a process that was killed. Used by one thread.
class RunFolder {
 public:
  RunFolder() = default;
  // Leaves the folder as it is.
  ~RunFolder();

  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Makes the folder in `parent`. First removes folders of this user whose processes have ended without doing so.
  // UNAVAILABLE if it cannot be made. Call it once.
  absl::Status Make(const std::string& parent);

  // Removes the folder, if there is one.
  void Remove();
  // Leaves the folder to the user, if there is one: later processes do not remove it.
  void Keep();

  // Empty until it is made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace quire

#endif  // QUIRE_LAUNCHER_RUN_FOLDER_H_
