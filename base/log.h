// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LOG_H_
#define QUIRE_BASE_LOG_H_

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/mutex.h"

// QUIRE_LOG(kInfo) << "worker " << Named("worker", address) << " joined"; writes one line to standard error. Log
// changes of state with their ids. Never log per token, and never log a prompt. As text the line is
//   I 2026-01-31T12:00:00.123Z worker node1:50061 joined
// and as JSON, where every Named value is also a field:
//   {"time":"2026-01-31T12:00:00.123456Z","severity":"INFO","message":"worker node1:50061 joined",
//    "source":"kv_manager/engine/step_loop.cc:264","pid":7,"thread":12,"worker":"node1:50061"}
// The result is one line of valid UTF-8, whatever bytes the message has: control characters and bytes that are not
// UTF-8 are escaped as \n, \t or \xff.

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Lines below `level` are dropped. Thread-safe; the default is kInfo.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();

// Sets the format of all later lines. Thread-safe; the default is kText.
void SetLogFormat(LogFormat format);
LogFormat GetLogFormat();

// A part of a message with a name, which makes it a field of its own in JSON.
struct LogField {
  const char* name;   // Unique in the line, and without characters that JSON escapes.
  std::string value;  // The value as text.
  bool is_number;
};

template <typename T>
LogField Named(const char* name, const T& value) {
  std::ostringstream text;
  text << value;
  return {name, std::move(text).str(), std::is_arithmetic_v<T> && !std::is_same_v<T, bool>};
}

// Returns `text` as a JSON string, with its quotes.
std::string JsonString(std::string_view text);

// Returns one line of JSON as above, with the newline. `file` is __FILE__, or null for a line without a source.
std::string JsonLogLine(const char* severity, const std::string& message, const std::vector<LogField>& fields,
                        const char* file, int line);

// Admits a limited number of lines per second, for lines that a client can cause as often as it likes. Thread-safe.
class LogLimiter {
 public:
  explicit LogLimiter(int max_per_second) : max_per_second_(max_per_second) {}

  // Returns nothing when the caller must drop the line. Otherwise returns how many lines were dropped since the last
  // one that was admitted.
  std::optional<int64_t> Admit(int64_t now_us);

 private:
  const int max_per_second_;
  Mutex mutex_;
  int64_t second_ QUIRE_GUARDED_BY(mutex_) = -1;
  int num_admitted_ QUIRE_GUARDED_BY(mutex_) = 0;  // Of second_.
  int64_t num_dropped_ QUIRE_GUARDED_BY(mutex_) = 0;
};

namespace internal {

class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line) : level_(level), file_(file), line_(line) {}
  ~LogLine();  // Writes the whole line in one call.

  template <typename T>
  LogLine& operator<<(const T& part) {
    message_ << part;
    return *this;
  }
  LogLine& operator<<(LogField field) {
    message_ << field.value;
    fields_.push_back(std::move(field));
    return *this;
  }

 private:
  const LogLevel level_;
  const char* const file_;
  const int line_;
  std::ostringstream message_;
  std::vector<LogField> fields_;
};

}  // namespace internal
}  // namespace quire

#define QUIRE_LOG(level)                                   \
  if (::quire::LogLevel::level < ::quire::GetLogLevel()) { \
  } else                                                   \
    ::quire::internal::LogLine(::quire::LogLevel::level, __FILE__, __LINE__)

#endif  // QUIRE_BASE_LOG_H_
