// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/jinja/text.h"

namespace quire::jinja {
namespace {

constexpr size_t kMaxBrackets = 100;

bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsNamePart(char c) {
  return IsNameStart(c) || IsDigit(c);
}

// Makes every line end "\n", and removes the last one.
std::string WithPlainLineEnds(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(WithPlainLineEnds(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) {
      const size_t tag = FindTag(pos_);
      const std::string_view opening = tag == std::string::npos ? "" : std::string_view(source_).substr(tag, 2);
      AddText(tag == std::string::npos ? source_.size() : tag, opening);
      if (tag == std::string::npos) break;
      QUIRE_RETURN_IF_ERROR(opening == "{#" ? SkipComment() : opening == "{%" ? LexTag() : LexOutput());
    }
    Add(Token::Kind::kEnd, "end of the template");
    return std::move(tokens_);
  }

 private:
  template <typename... Parts>
  absl::Status Error(int line, const Parts&... parts) const {
    return InvalidArgument("line ", line, ": ", parts...);
  }

  size_t FindTag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#')) {
        return at;
      }
    }
    return std::string::npos;
  }

  bool StartsWith(std::string_view prefix) const { return std::string_view(source_).substr(pos_).starts_with(prefix); }

  // Moves to `end` and counts the lines. REQUIRES: pos_ <= end <= the size of the source.
  void MoveTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    pos_ = end;
  }

  void SkipSpace() {
    const std::string_view rest = std::string_view(source_).substr(pos_);
    MoveTo(pos_ + Strip(rest, nullptr, true, false).begin);
  }

  void Add(Token::Kind kind, std::string_view text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = text;
    tokens_.push_back(std::move(token));
  }

  // Adds the text up to `end`, where a tag with this opening begins, without the whitespace that the tag removes.
  void AddText(size_t end, std::string_view opening) {
    std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    const char sign = opening.empty() || end + 2 >= source_.size() ? ' ' : source_[end + 2];
    if (sign == '-') {
      text = text.substr(0, Strip(text, nullptr, false, true).end);
    } else if (!opening.empty() && opening != "{{" && sign != '+') {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const bool is_whole_line = line_begin > 0 || starts_line_;
      const Range rest = Strip(text.substr(line_begin), nullptr, true, false);
      if (is_whole_line && rest.begin == rest.end) text = text.substr(0, line_begin);
    }
    if (!text.empty()) Add(Token::Kind::kText, text);
    if (end > pos_) starts_line_ = source_[end - 1] == '\n';
    MoveTo(end);
  }

  // Moves behind the opening of a tag and its sign.
  void SkipOpening() {
    pos_ += 2;
    if (pos_ < source_.size() && (source_[pos_] == '-' || source_[pos_] == '+')) ++pos_;
  }

  // Moves behind a closing such as "-%}", which begins at pos_, and the whitespace that it removes. Returns false when
  // there is none.
  bool SkipClosing(std::string_view closing) {
    const bool is_output = closing == "}}";
    const char sign = source_[pos_];
    const bool has_sign = sign == '-' || (sign == '+' && !is_output);
    const size_t at = pos_ + (has_sign ? 1 : 0);
    if (!std::string_view(source_).substr(at).starts_with(closing)) return false;
    const size_t begin = pos_;
    pos_ = at + closing.size();
    if (sign == '-') {
      SkipSpace();
    } else if (!is_output && sign != '+' && pos_ < source_.size() && source_[pos_] == '\n') {
      MoveTo(pos_ + 1);
    }
    starts_line_ = pos_ > begin && source_[pos_ - 1] == '\n';
    return true;
  }

  absl::Status SkipComment() {
    const int line = line_;
    SkipOpening();
    // The sign of "{#-" may not be that of "-#}".
    while (pos_ < source_.size()) {
      if (SkipClosing("#}")) return absl::OkStatus();
      MoveTo(pos_ + 1);
    }
    return Error(line, "the comment {# is not closed");
  }

  absl::Status LexTag() {
    const int line = line_;
    const size_t begin = pos_;
    SkipOpening();
    SkipSpace();
    if (IsWord("raw")) {
      pos_ += 3;
      SkipSpace();
      const bool strips = StartsWith("-%}");
      if (strips || StartsWith("%}")) {
        pos_ += strips ? 3 : 2;
        if (strips) SkipSpace();
        return LexRaw(line);
      }
      return Error(line, "{% raw %} takes no arguments");
    }
    pos_ = begin;
    line_ = line;
    Add(Token::Kind::kTagBegin, "{%");
    SkipOpening();
    return LexInside("%}", Token::Kind::kTagEnd, line);
  }

  absl::Status LexOutput() {
    const int line = line_;
    Add(Token::Kind::kOutputBegin, "{{");
    pos_ += 2;
    // A variable has no lstrip_blocks to switch off, so a "+" here is an operator.
    if (pos_ < source_.size() && source_[pos_] == '-') ++pos_;
    return LexInside("}}", Token::Kind::kOutputEnd, line);
  }

  bool IsWord(std::string_view word) const {
    const size_t end = pos_ + word.size();
    return StartsWith(word) && (end >= source_.size() || !IsNamePart(source_[end]));
  }

  // Everything until {% endraw %} is text.
  absl::Status LexRaw(int line) {
    const size_t begin = pos_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      const size_t after_opening = tag + 2;
      size_t at = after_opening;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
      at += Strip(std::string_view(source_).substr(at), nullptr, true, false).begin;
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at += 6;
      at += Strip(std::string_view(source_).substr(at), nullptr, true, false).begin;
      AddText(tag, "{%");
      MoveTo(at);
      if (at < source_.size() && SkipClosing("%}")) return absl::OkStatus();
      return Error(line_, "{% endraw %} takes no arguments");
    }
    return Error(line, "{% raw %} is not closed by {% endraw %}");
  }

  // Cuts the inside of a tag into tokens, up to its closing.
  absl::Status LexInside(std::string_view closing, Token::Kind end, int opening_line) {
    std::vector<char> brackets;
    while (true) {
      SkipSpace();
      if (pos_ >= source_.size()) {
        return Error(opening_line, end == Token::Kind::kTagEnd ? "the tag {%" : "the output {{", " is not closed");
      }
      if (brackets.empty()) {
        const int line = line_;
        if (SkipClosing(closing)) {
          Add(end, closing);
          tokens_.back().line = line;
          return absl::OkStatus();
        }
      }
      QUIRE_RETURN_IF_ERROR(LexToken(&brackets));
    }
  }

  absl::Status LexToken(std::vector<char>* brackets) {
    const char c = source_[pos_];
    if (c == '\'' || c == '"') return LexString(c);
    if (IsDigit(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t end = pos_;
      while (end < source_.size() && IsNamePart(source_[end])) ++end;
      Add(Token::Kind::kName, std::string_view(source_).substr(pos_, end - pos_));
      pos_ = end;
      return absl::OkStatus();
    }
    static constexpr std::array<std::string_view, 27> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", ""};
    for (const std::string_view name : kOperators) {
      if (name.empty() || !StartsWith(name)) continue;
      QUIRE_RETURN_IF_ERROR(Balance(c, brackets));
      Add(Token::Kind::kOperator, name);
      pos_ += name.size();
      return absl::OkStatus();
    }
    return Error(line_, "unexpected character '", source_.substr(pos_, Utf8Length(c)), "'");
  }

  absl::Status Balance(char c, std::vector<char>* brackets) const {
    if (brackets->size() > kMaxBrackets) {
      return Error(line_, "an expression is nested deeper than ", kMaxBrackets, " levels");
    }
    if (c == '(') brackets->push_back(')');
    if (c == '[') brackets->push_back(']');
    if (c == '{') brackets->push_back('}');
    if (c != ')' && c != ']' && c != '}') return absl::OkStatus();
    if (brackets->empty() || brackets->back() != c) return Error(line_, "unexpected '", std::string(1, c), "'");
    brackets->pop_back();
    return absl::OkStatus();
  }

  absl::Status LexNumber() {
    const size_t begin = pos_;
    const auto skip_digits = [&](auto is_digit) {
      while (pos_ < source_.size() && (is_digit(source_[pos_]) || (source_[pos_] == '_' && pos_ + 1 < source_.size() &&
                                                                   is_digit(source_[pos_ + 1]) && pos_ > begin))) {
        ++pos_;
      }
    };
    if (source_[pos_] == '0' && pos_ + 1 < source_.size() &&
        std::string_view("xXbBoO").find(source_[pos_ + 1]) != std::string_view::npos) {
      const char base = static_cast<char>(std::tolower(static_cast<unsigned char>(source_[pos_ + 1])));
      pos_ += 2;
      skip_digits([](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
      return AddInteger(begin + 2, base == 'x' ? 16 : base == 'o' ? 8 : 2);
    }
    skip_digits(IsDigit);
    bool is_float = false;
    if (pos_ + 1 < source_.size() && source_[pos_] == '.' && IsDigit(source_[pos_ + 1])) {
      is_float = true;
      ++pos_;
      skip_digits(IsDigit);
    }
    if (pos_ < source_.size() && (source_[pos_] == 'e' || source_[pos_] == 'E')) {
      size_t digits = pos_ + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      if (digits < source_.size() && IsDigit(source_[digits])) {
        is_float = true;
        pos_ = digits;
        skip_digits(IsDigit);
      }
    }
    if (!is_float) return AddInteger(begin, 10);
    std::string digits = source_.substr(begin, pos_ - begin);
    std::erase(digits, '_');
    Add(Token::Kind::kFloat, digits);
    if (!absl::SimpleAtod(digits, &tokens_.back().number)) return Error(line_, "'", digits, "' is not a number");
    return absl::OkStatus();
  }

  absl::Status AddInteger(size_t begin, int base) {
    std::string digits = source_.substr(begin, pos_ - begin);
    std::erase(digits, '_');
    Add(Token::Kind::kInteger, digits);
    const auto is_digit = [&](char c) {
      const int value = IsDigit(c) ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      return value < base;
    };
    int64_t value = 0;
    for (const char c : digits) {
      const int digit = IsDigit(c) ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      if (!is_digit(c) || __builtin_mul_overflow(value, static_cast<int64_t>(base), &value) ||
          __builtin_add_overflow(value, static_cast<int64_t>(digit), &value)) {
        return Error(line_, "'", digits, "' is not an integer of 64 bits");
      }
    }
    if (digits.empty()) return Error(line_, "a number has no digits");
    tokens_.back().integer = value;
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    const int line = line_;
    Add(Token::Kind::kString, "");
    std::string value;
    size_t pos = pos_ + 1;
    while (true) {
      if (pos >= source_.size()) return Error(line, "the string ", std::string(1, quote), " is not closed");
      const char c = source_[pos];
      if (c == quote) break;
      ++pos;
      if (c != '\\') {
        value.push_back(c);
        continue;
      }
      if (pos >= source_.size()) return Error(line, "the string ", std::string(1, quote), " is not closed");
      QUIRE_RETURN_IF_ERROR(Unescape(line, &pos, &value));
    }
    tokens_.back().text = std::move(value);
    MoveTo(pos + 1);
    return absl::OkStatus();
  }

  // Appends what the escape behind a backslash at *pos means in Python, and moves behind it.
  absl::Status Unescape(int line, size_t* pos, std::string* value) const {
    const char c = source_[(*pos)++];
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const size_t letter = kLetters.find(c);
    if (letter != std::string_view::npos) {
      value->push_back(kMeanings[letter]);
      return absl::OkStatus();
    }
    if (c == '\n') return absl::OkStatus();
    size_t max_digits = 0;
    uint32_t base = 16;
    if (c == 'x') max_digits = 2;
    if (c == 'u') max_digits = 4;
    if (c == 'U') max_digits = 8;
    if (c >= '0' && c <= '7') {
      --*pos;
      base = 8;
      max_digits = 3;
    }
    if (c == 'N') return Error(line, "the escape \\N{...} is not supported");
    if (max_digits == 0) {
      value->push_back('\\');
      value->push_back(c);
      return absl::OkStatus();
    }
    uint32_t code = 0;
    size_t num_digits = 0;
    while (num_digits < max_digits && *pos < source_.size()) {
      const char digit = source_[*pos];
      if (base == 8 ? digit < '0' || digit > '7' : std::isxdigit(static_cast<unsigned char>(digit)) == 0) break;
      code = code * base + static_cast<uint32_t>(IsDigit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
      ++num_digits;
      ++*pos;
    }
    if (base == 16 && num_digits < max_digits) return Error(line, "the escape \\", std::string(1, c), " is too short");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return Error(line, "the escape \\", std::string(1, c), " is not a character");
    }
    AppendUtf8(code, value);
    return absl::OkStatus();
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace quire::jinja
