// SPDX-License-Identifier: Apache-2.0

#include "base/check.h"

#include <cstdlib>

#include "base/log.h"
#include "base/log_output.h"

namespace quire::internal {

CheckFailure::CheckFailure(const char* file, int line, const std::string& condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  // The message must be written before the process ends. The stream begins with file and line.
  const bool is_json = GetLogFormat() == LogFormat::kJson;
  WriteLastLogLine(is_json ? JsonLogLine("CRITICAL", stream_.str(), {}, nullptr, 0) : stream_.str() + "\n");
  std::abort();
}

}  // namespace quire::internal
