#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace quire::internal {

CheckFailure::CheckFailure(const char* file, int line, const std::string& condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  // The message must be written before the process ends. The stream begins with file and line.
  const bool is_json = GetLogFormat() == LogFormat::kJson;
  const std::string line = is_json ? JsonLogLine("CRITICAL", stream_.str(), {}, nullptr, 0) : stream_.str() + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace quire::internal
