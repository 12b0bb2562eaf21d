#ifndef QUIRE_BASE_LOG_H_
#define QUIRE_BASE_LOG_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// QUIRE_LOG(kInfo) << "worker " << Named("worker", address) << " joined"; writes one line to standard error. For
// changes of state, with their ids; never per token, and never a prompt. As text it is
//   I 2026-01-31T12:00:00.123Z worker node1:50061 joined
// and as JSON, with what was Named as fields besides:
//   {"time":"2026-01-31T12:00:00.123456Z","severity":"INFO","message":"worker node1:50061 joined",
//    "source":"kv_manager/engine/step_loop.cc:264","pid":7,"thread":12,"worker":"node1:50061"}
// A line is one line and valid UTF-8 whatever bytes are in its message: control characters and bytes that are no UTF-8
// read \n, \t or \xff.

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Lines below `level` are dropped. Thread-safe; the default is kInfo.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();

// Of all lines from now on. Thread-safe; the default is kText.
void SetLogFormat(LogFormat format);
LogFormat GetLogFormat();

// A part of a message that has a name, and is a field of its own in JSON.
struct LogField {
  const char* name;   // A JSON name that the line itself does not use, as it is.
  std::string value;  // As text.
  bool is_number;
};

template <typename T>
LogField Named(const char* name, const T& value) {
  std::ostringstream text;
  text << value;
  return {name, std::move(text).str(), std::is_arithmetic_v<T> && !std::is_same_v<T, bool>};
}

// `text` in quotes, as a JSON string.
std::string JsonString(std::string_view text);

// One line of JSON as above, with its end. `file` is __FILE__, null for none.
std::string JsonLogLine(const char* severity, const std::string& message, const std::vector<LogField>& fields,
                        const char* file, int line);

// Lets the first lines of each second through, for what others can cause at will. Thread-safe.
class LogLimiter {
 public:
  explicit LogLimiter(int max_per_second) : max_per_second_(max_per_second) {}

  // Nothing: drop the line. Else write it, with the number of lines that were dropped since the last one.
  std::optional<int64_t> Admit(int64_t now_us);

 private:
  const int max_per_second_;
  std::mutex mutex_;
  int64_t second_ = -1;  // Guarded by mutex_, as all below.
  int num_admitted_ = 0;
  int64_t num_dropped_ = 0;
};

namespace internal {

class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line) : level_(level), file_(file), line_(line) {}
  ~LogLine();  // Writes the line, whole, in one call.

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
