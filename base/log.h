#ifndef QUIRE_BASE_LOG_H_
#define QUIRE_BASE_LOG_H_

#include <sstream>

// QUIRE_LOG(kInfo) << "worker joined: " << name; writes one line to standard error. For changes of state, with their
// ids; never per token, and never a prompt.

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped. Thread-safe; the default is kInfo.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();

namespace internal {

class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine();  // Writes the line, whole, in one call.

  std::ostream& stream() { return stream_; }

 private:
  const LogLevel level_;
  std::ostringstream stream_;
};

}  // namespace internal
}  // namespace quire

#define QUIRE_LOG(level)                                   \
  if (::quire::LogLevel::level < ::quire::GetLogLevel()) { \
  } else                                                   \
    ::quire::internal::LogLine(::quire::LogLevel::level).stream()

#endif  // QUIRE_BASE_LOG_H_
