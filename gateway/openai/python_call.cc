// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/python_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

// Takes a value up to the next comma outside of strings and brackets, as JSON. Returns false when it is none.
bool TakeValue(absl::string_view* text, Json* value) {
  int depth = 0;
  bool is_string = false;
  size_t end = 0;
  for (; end < text->size(); ++end) {
    const char c = (*text)[end];
    if (is_string) {
      if (c == '\\') ++end;
      if (c == '"') is_string = false;
      continue;
    }
    if (c == '"') is_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) break;
  }
  end = std::min(end, text->size());
  *value = ParsePart(text->substr(0, end));
  text->remove_prefix(end);
  return !value->is_discarded();
}

}  // namespace

std::optional<WholeCall> ParsePythonCall(absl::string_view code) {
  const size_t open = code.find('(');
  if (open == code.npos || !absl::EndsWith(code, ")")) return std::nullopt;
  absl::string_view name = code.substr(0, open);
  if (!absl::ConsumeSuffix(&name, ".call") || name.empty()) return std::nullopt;
  if (!std::all_of(name.begin(), name.end(), IsNameCharacter)) return std::nullopt;
  absl::string_view rest = absl::StripAsciiWhitespace(code.substr(open + 1, code.size() - open - 2));
  Json arguments = Json::object();
  while (!rest.empty()) {
    const size_t equals = rest.find('=');
    if (equals == rest.npos) return std::nullopt;
    const absl::string_view key = absl::StripAsciiWhitespace(rest.substr(0, equals));
    if (key.empty() || !std::all_of(key.begin(), key.end(), IsNameCharacter)) return std::nullopt;
    rest.remove_prefix(equals + 1);
    Json value;
    if (!TakeValue(&rest, &value)) return std::nullopt;
    arguments[std::string(key)] = std::move(value);
    if (absl::ConsumePrefix(&rest, ",")) rest = absl::StripLeadingAsciiWhitespace(rest);
  }
  return WholeCall{.name = std::string(name), .arguments = Dump(arguments)};
}

}  // namespace quire
