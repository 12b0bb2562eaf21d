#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace quire {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

char Letter(LogLevel level) {
  return "DIWE"[static_cast<int>(level)];
}

}  // namespace

void SetLogLevel(LogLevel level) {
  g_level = level;
}
LogLevel GetLogLevel() {
  return g_level;
}

namespace internal {

LogLine::~LogLine() {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  const std::string line = absl::StrCat(std::string(1, Letter(level_)), " ", time, " ", stream_.str(), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace internal
}  // namespace quire
