// SPDX-License-Identifier: Apache-2.0

#include "launcher/log_line.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::json;

// "I 2026-01-31T12:00:00.123Z " stands before a message.
constexpr size_t kHeadBytes = 27;

bool HasHead(absl::string_view line) {
  return line.size() >= kHeadBytes && absl::StrContains("DIWE", line[0]) && line[1] == ' ' && line[12] == 'T' &&
         line[kHeadBytes - 2] == 'Z' && line[kHeadBytes - 1] == ' ';
}

// The severities of JSON have other first letters only for CRITICAL, the error with which a service ends.
char LevelOf(absl::string_view severity) {
  return severity == "CRITICAL" ? 'E' : severity[0];
}

}  // namespace

LogLine ReadLogLine(absl::string_view line) {
  line = absl::StripTrailingAsciiWhitespace(line);
  if (HasHead(line)) return {line[0], std::string(line.substr(kHeadBytes))};
  if (absl::StartsWith(line, "{")) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto text = [&json](const char* name) {
      const auto member = json.find(name);
      return member != json.end() && member->is_string() ? member->get<std::string>() : std::string();
    };
    if (json.is_object() && !text("severity").empty()) return {LevelOf(text("severity")), text("message")};
  }
  return {' ', std::string(line)};
}

std::optional<std::string> WordAfter(absl::string_view title, absl::string_view message) {
  if (!absl::ConsumePrefix(&message, title)) return std::nullopt;
  return std::string(message.substr(0, message.find(' ')));
}

}  // namespace quire
