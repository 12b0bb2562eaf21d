// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_LOG_LINE_H_
#define QUIRE_LAUNCHER_LOG_LINE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// A line that one of our services has printed (base/log.h).
struct LogLine {
  char level = ' ';     // D, I, W or E, or a space for what is no line of the log.
  std::string message;  // Without level, time and newline.
};

// Reads a line in either format of the log.
LogLine ReadLogLine(absl::string_view line);

// Returns the word after `title` if the message begins with it: "listening on " finds "127.0.0.1:8000".
std::optional<std::string> WordAfter(absl::string_view title, absl::string_view message);

}  // namespace quire

#endif  // QUIRE_LAUNCHER_LOG_LINE_H_
