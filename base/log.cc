// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log_output.h"
#include "base/utf8.h"

namespace quire {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};

char Letter(LogLevel level) {
  return "DIWE"[static_cast<int>(level)];
}

const char* Severity(LogLevel level) {
  static constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  return kNames[static_cast<int>(level)];
}

std::string Now(const char* format) {
  return absl::FormatTime(format, absl::Now(), absl::UTCTimeZone());
}

// The directory of the repository at compile time, which is __FILE__ without the path inside the repository.
absl::string_view SourceRoot() {
  return absl::StripSuffix(__FILE__, "base/log.cc");
}

// Escapes control characters and bytes that are not UTF-8. The control characters of ISO 6429, U+0080 to U+009F, are
// among them, because a terminal may obey them.
std::string Printable(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    const size_t length = Utf8Length(text[0]);
    const bool is_c1 = byte == 0xC2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (byte < 0x20 || byte == 0x7F || is_c1 || !IsValidUtf8(text.substr(0, length))) {
      const absl::string_view shorthand = byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : byte == '\r' ? "\\r" : "";
      absl::StrAppend(&printable, shorthand);
      if (shorthand.empty()) absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
      text.remove_prefix(1);
    } else {
      printable.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return printable;
}

// Returns the field's value in JSON. JSON has no infinities and no NaN, so these become strings.
std::string JsonValue(const LogField& field) {
  double number;
  const bool is_number = field.is_number && absl::SimpleAtod(field.value, &number) && std::isfinite(number);
  return is_number ? field.value : JsonString(field.value);
}

}  // namespace

void SetLogLevel(LogLevel level) {
  g_level = level;
}
LogLevel GetLogLevel() {
  return g_level;
}

void SetLogFormat(LogFormat format) {
  g_format = format;
}
LogFormat GetLogFormat() {
  return g_format;
}

std::string JsonString(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : Printable(text)) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted + "\"";
}

std::string JsonLogLine(const char* severity, const std::string& message, const std::vector<LogField>& fields,
                        const char* file, int line) {
  std::string text = absl::StrCat("{\"time\":\"", Now("%Y-%m-%dT%H:%M:%E6SZ"), "\",\"severity\":\"", severity,
                                  "\",\"message\":", JsonString(message));
  if (file != nullptr) {
    const std::string source = absl::StrCat(absl::StripPrefix(file, SourceRoot()), ":", line);
    absl::StrAppend(&text, ",\"source\":", JsonString(source));
  }
  absl::StrAppend(&text, ",\"pid\":", getpid(), ",\"thread\":", gettid());
  for (const LogField& field : fields) absl::StrAppend(&text, ",\"", field.name, "\":", JsonValue(field));
  return absl::StrCat(text, "}\n");
}

std::optional<int64_t> LogLimiter::Admit(int64_t now_us) {
  const MutexLock lock(&mutex_);
  if (const int64_t second = now_us / 1'000'000; second != second_) {
    second_ = second;
    num_admitted_ = 0;
  }
  if (num_admitted_ >= max_per_second_) {
    ++num_dropped_;
    return std::nullopt;
  }
  ++num_admitted_;
  return std::exchange(num_dropped_, 0);
}

namespace internal {

LogLine::~LogLine() {
  const std::string line = GetLogFormat() == LogFormat::kJson
                               ? JsonLogLine(Severity(level_), message_.str(), fields_, file_, line_)
                               : absl::StrCat(std::string(1, Letter(level_)), " ", Now("%Y-%m-%dT%H:%M:%E3SZ"), " ",
                                              Printable(message_.str()), "\n");
  WriteLogLine(line);
}

}  // namespace internal
}  // namespace quire
