// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/python_literal.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/number_text.h"
#include "base/utf8.h"

namespace quire {
namespace {

constexpr int kMaxDepth = 64;

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

// Every method moves text_ behind what it takes and behind the space that follows. A method returns false, or nothing,
// when the text has another form.
class PythonReader {
 public:
  explicit PythonReader(absl::string_view text) : text_(text) { SkipSpace(); }

  bool is_at_end() const { return text_.empty(); }

  bool Take(absl::string_view expected) {
    if (!absl::ConsumePrefix(&text_, expected)) return false;
    SkipSpace();
    return true;
  }

  std::string Word() {
    size_t end = 0;
    while (end < text_.size() && IsWordCharacter(text_[end])) ++end;
    std::string word(text_.substr(0, end));
    text_.remove_prefix(end);
    SkipSpace();
    return word;
  }

  bool Value(int depth, Json* value) {
    if (depth > kMaxDepth || text_.empty()) return false;
    switch (text_[0]) {
      case '"':
      case '\'': {
        std::string string;
        if (!String(&string)) return false;
        *value = std::move(string);
        return true;
      }
      case '[':
        return Take("[") && List("]", depth, value);
      case '(':
        return Take("(") && List(")", depth, value);
      case '{':
        return Take("{") && Dictionary(depth, value);
      default:
        return Scalar(value);
    }
  }

  bool Call(WholeCall* call) {
    call->name = Word();
    if (call->name.empty() || !Take("(")) return false;
    Json arguments = Json::object();
    while (!Take(")")) {
      const std::string key = Word();
      Json value;
      if (key.empty() || !Take("=") || !Value(0, &value)) return false;
      arguments[key] = std::move(value);
      if (!Take(",") && !absl::StartsWith(text_, ")")) return false;
    }
    call->arguments = Dump(arguments);
    return true;
  }

 private:
  void SkipSpace() { text_ = absl::StripLeadingAsciiWhitespace(text_); }

  bool List(absl::string_view end, int depth, Json* value) {
    *value = Json::array();
    while (!Take(end)) {
      Json item;
      if (!Value(depth + 1, &item)) return false;
      value->push_back(std::move(item));
      if (!Take(",") && !absl::StartsWith(text_, end)) return false;
    }
    return true;
  }

  bool Dictionary(int depth, Json* value) {
    *value = Json::object();
    while (!Take("}")) {
      std::string key;
      Json item;
      if (!String(&key) || !Take(":") || !Value(depth + 1, &item)) return false;
      (*value)[key] = std::move(item);
      if (!Take(",") && !absl::StartsWith(text_, "}")) return false;
    }
    return true;
  }

  bool Scalar(Json* value) {
    size_t end = 0;
    while (end < text_.size() && (IsWordCharacter(text_[end]) || text_[end] == '+')) ++end;
    const absl::string_view word = text_.substr(0, end);
    if (word == "True" || word == "true") {
      *value = true;
    } else if (word == "False" || word == "false") {
      *value = false;
    } else if (word == "None" || word == "null") {
      *value = nullptr;
    } else {
      *value = Json::parse(word, nullptr, /*allow_exceptions=*/false);
      if (!value->is_number()) return false;
    }
    text_.remove_prefix(end);
    SkipSpace();
    return true;
  }

  bool String(std::string* out) {
    if (text_.empty() || (text_[0] != '"' && text_[0] != '\'')) return false;
    const char quote = text_[0];
    size_t at = 1;
    for (; at < text_.size() && text_[at] != quote; ++at) {
      if (text_[at] != '\\') {
        *out += text_[at];
      } else if (++at >= text_.size() || !Escape(&at, out)) {
        return false;
      }
    }
    if (at >= text_.size() || !IsValidUtf8({out->data(), out->size()})) return false;
    text_.remove_prefix(at + 1);
    SkipSpace();
    return true;
  }

  // `at` is the character behind the backslash, and then the last one of the escape.
  bool Escape(size_t* at, std::string* out) {
    switch (const char c = text_[*at]) {
      case 'n':
        *out += '\n';
        return true;
      case 't':
        *out += '\t';
        return true;
      case 'r':
        *out += '\r';
        return true;
      case 'b':
        *out += '\b';
        return true;
      case 'f':
        *out += '\f';
        return true;
      case '\n':
        return true;
      case 'x':
        return Hex(2, at, out);
      case 'u':
        return Hex(4, at, out);
      case 'U':
        return Hex(8, at, out);
      case '\\':
      case '\'':
      case '"':
      case '/':
        *out += c;
        return true;
      default:
        *out += '\\';
        *out += c;
        return true;
    }
  }

  bool Hex(int num_digits, size_t* at, std::string* out) {
    uint32_t value = 0;
    if (!Digits(num_digits, at, &value)) return false;
    // JSON writes a character beyond 16 bits as two halves.
    if (value >= 0xD800 && value < 0xDC00 && absl::StartsWith(text_.substr(*at + 1), "\\u")) {
      uint32_t low = 0;
      *at += 2;
      if (!Digits(4, at, &low) || low < 0xDC00 || low > 0xDFFF) return false;
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
    AppendUtf8(static_cast<char32_t>(value), out);
    return true;
  }

  bool Digits(int num_digits, size_t* at, uint32_t* value) {
    for (int i = 0; i < num_digits; ++i) {
      ++*at;
      const int digit = *at < text_.size() ? HexValue(text_[*at]) : -1;
      if (digit < 0) return false;
      *value = *value * 16 + static_cast<uint32_t>(digit);
    }
    return true;
  }

  absl::string_view text_;
};

}  // namespace

std::optional<Json> ParsePythonLiteral(absl::string_view text) {
  PythonReader reader(text);
  Json value;
  if (!reader.Value(0, &value) || !reader.is_at_end()) return std::nullopt;
  return value;
}

std::optional<std::vector<WholeCall>> ParsePythonCalls(absl::string_view text) {
  PythonReader reader(text);
  std::vector<WholeCall> calls;
  if (!reader.Take("[")) return std::nullopt;
  while (!reader.Take("]")) {
    WholeCall call;
    if (!reader.Call(&call)) return std::nullopt;
    calls.push_back(std::move(call));
    if (reader.Take(",")) continue;
    if (!reader.Take("]")) return std::nullopt;
    break;
  }
  if (!reader.is_at_end()) return std::nullopt;
  return calls;
}

}  // namespace quire
