// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/regex_syntax.h"

#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/utf8.h"

namespace quire {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr int kMaxNesting = 100;

// The members of a class, without the brackets.
constexpr std::string_view kSpace =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}"
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}";
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

bool IsGeneralCategory(std::string_view name) {
  static constexpr std::string_view kNames =
      " C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs ";
  return name.size() <= 2 && kNames.find(absl::StrCat(" ", std::string(name), " ")) != std::string_view::npos;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    groups_.push_back({});
    while (pos_ < in_.size()) QUIRE_RETURN_IF_ERROR(Item());
    if (groups_.size() != 1) return Unsupported("a group that is not closed", in_.size());
    out_.append(groups_.back().num_flag_groups, ')');
    return std::move(out_);
  }

 private:
  struct Group {
    size_t begin = 0;            // The offset of its "(" in out_.
    size_t num_flag_groups = 0;  // Isolated (?i) that were turned into groups, which end with this one.
  };

  absl::Status Unsupported(std::string_view what, size_t at) const {
    return absl::InvalidArgumentError(absl::StrCat("regular expression has ", std::string(what), " at byte ", at));
  }

  char Peek(size_t offset = 0) const { return pos_ + offset < in_.size() ? in_[pos_ + offset] : '\0'; }

  void StartAtom() { atom_ = out_.size(); }

  absl::Status Item() {
    const char c = in_[pos_];
    switch (c) {
      case '\\':
        StartAtom();
        return Escape();
      case '[': {
        StartAtom();
        std::string members;
        bool is_negated = false;
        QUIRE_RETURN_IF_ERROR(Class(&members, &is_negated, 0));
        absl::StrAppend(&out_, is_negated ? "[^" : "[", members, "]");
        return absl::OkStatus();
      }
      case '(':
        return OpenGroup();
      case ')':
        return CloseGroup();
      case '{':
        return Interval();
      case '?':
      case '*':
      case '+':
        out_.push_back(c);
        ++pos_;
        if (Peek() == '?' || Peek() == '+') out_.push_back(in_[pos_++]);
        return absl::OkStatus();
      case '|':
      case '^':
      case '$':
      case '.':
        StartAtom();
        out_.push_back(c);
        ++pos_;
        return absl::OkStatus();
      default:
        StartAtom();
        out_.append(in_.substr(pos_, Utf8Length(c)));
        pos_ += Utf8Length(c);
        return absl::OkStatus();
    }
  }

  // Handles an escape outside of a class, at in_[pos_] == '\\'.
  absl::Status Escape() {
    std::string members;
    bool is_negated = false;
    const char c = Peek(1);
    if (std::string_view("AzZGKR123456789").find(c) != std::string_view::npos) {
      out_.append({'\\', c});
      pos_ += 2;
      return absl::OkStatus();
    }
    if (c == 'b' || c == 'B') {
      // A boundary has a word character on one side only; \B has one on both sides or on none.
      const std::string word = absl::StrCat("[", kWord.data(), "])");
      const char* same = c == 'b' ? "(?!" : "(?=";
      const char* other = c == 'b' ? "(?=" : "(?!";
      absl::StrAppend(&out_, "(?:(?<=", word, same, word, "|(?<!", word, other, word, ")");
      pos_ += 2;
      return absl::OkStatus();
    }
    const size_t at = pos_;
    QUIRE_RETURN_IF_ERROR(ClassEscape(&members, &is_negated));
    if (members.empty()) return Unsupported("an escape that is not supported", at);
    absl::StrAppend(&out_, is_negated ? "[^" : "[", members, "]");
    return absl::OkStatus();
  }

  // Appends the class members that an escape means. *is_negated says that it means all others.
  absl::Status ClassEscape(std::string* members, bool* is_negated) {
    const size_t at = pos_;
    const char c = Peek(1);
    pos_ += 2;
    *is_negated = absl::ascii_isupper(static_cast<unsigned char>(c)) && std::string_view("SWDH").find(c) < 4;
    switch (c) {
      case 's':
      case 'S':
        members->append(kSpace);
        return absl::OkStatus();
      case 'w':
      case 'W':
        members->append(kWord);
        return absl::OkStatus();
      case 'd':
      case 'D':
        members->append("\\p{Nd}");
        return absl::OkStatus();
      case 'h':
      case 'H':
        members->append(kHexDigit);
        return absl::OkStatus();
      case 'p':
      case 'P':
        return Property(members);
      case 'n':
      case 't':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        members->append({'\\', c});
        return absl::OkStatus();
      case 'v':
        members->append("\\x{B}");
        return absl::OkStatus();
      case 'x':
      case 'u':
        return CodePoint(c, at, members);
      default:
        break;
    }
    if (c == '\0' && at + 1 >= in_.size()) return Unsupported("a backslash at its end", at);
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) return Unsupported("an escape that is not supported", at);
    pos_ = at + 1;
    AppendLiteral(members);
    return absl::OkStatus();
  }

  // Handles \p{Name}, \p{^Name} and \P{Name}. pos_ is behind the letter.
  absl::Status Property(std::string* members) {
    const size_t at = pos_ - 2;
    bool is_negated = in_[pos_ - 1] == 'P';
    const size_t end = in_.find('}', pos_);
    if (Peek() != '{' || end == std::string_view::npos) return Unsupported("a property without {name}", at);
    std::string_view name = in_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    if (!name.empty() && name.front() == '^') {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    for (const char c : name) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') {
        return Unsupported("a property name that is not supported", at);
      }
    }
    absl::StrAppend(members, is_negated ? "\\P{" : "\\p{", IsGeneralCategory(name) ? "" : "sc:", std::string(name),
                    "}");
    return absl::OkStatus();
  }

  // Handles \xHH, \x{H...} and \uHHHH. pos_ is behind the letter.
  absl::Status CodePoint(char letter, size_t at, std::string* members) {
    std::string_view digits;
    if (letter == 'x' && Peek() == '{') {
      const size_t end = in_.find('}', pos_);
      if (end == std::string_view::npos) return Unsupported("an unfinished \\x{", at);
      digits = in_.substr(pos_ + 1, end - pos_ - 1);
      pos_ = end + 1;
    } else {
      digits = in_.substr(pos_, letter == 'x' ? 2 : 4);
      pos_ += digits.size();
    }
    uint32_t value = 0;
    if (digits.empty() || digits.size() > 6) return Unsupported("a code point that is not supported", at);
    for (const char c : digits) {
      if (HexValue(c) < 0) return Unsupported("a bad hexadecimal digit", at);
      value = value * 16 + static_cast<uint32_t>(HexValue(c));
    }
    const bool is_raw_byte = letter == 'x' && digits.size() == 2 && value >= 0x80 && in_[pos_ - 1] != '}';
    if (is_raw_byte || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return Unsupported("a code point that is not supported", at);
    }
    absl::StrAppend(members, "\\x{", absl::Hex(value), "}");
    return absl::OkStatus();
  }

  // Appends the character at pos_ as a literal class member.
  void AppendLiteral(std::string* members) {
    const char c = in_[pos_];
    if (absl::ascii_ispunct(static_cast<unsigned char>(c))) members->push_back('\\');
    members->append(in_.substr(pos_, Utf8Length(c)));
    pos_ += Utf8Length(c);
  }

  // Handles a class at in_[pos_] == '['. A class inside of it is a union, so its members are simply added.
  absl::Status Class(std::string* members, bool* is_negated, int depth) {
    const size_t at = pos_++;
    if (depth > kMaxNesting) return Unsupported("classes nested too deeply", at);
    *is_negated = Peek() == '^';
    if (*is_negated) ++pos_;
    for (bool is_first = true; pos_ < in_.size(); is_first = false) {
      const char c = in_[pos_];
      if (c == ']' && !is_first) {
        ++pos_;
        if (members->empty()) return Unsupported("an empty class", at);
        return absl::OkStatus();
      }
      QUIRE_RETURN_IF_ERROR(ClassMember(members, depth));
    }
    return Unsupported("a class that is not closed", at);
  }

  absl::Status ClassMember(std::string* members, int depth) {
    const size_t at = pos_;
    const char c = in_[pos_];
    bool is_negated = false;
    if (c == '[' && Peek(1) == ':') {
      const std::string_view rest = in_.substr(pos_);
      const absl::string_view view(rest.data(), rest.size());
      if (absl::StartsWith(view, "[:space:]")) {
        members->append(kSpace);
        pos_ += 9;
        return absl::OkStatus();
      }
      if (absl::StartsWith(view, "[:digit:]")) {
        members->append("\\p{Nd}");
        pos_ += 9;
        return absl::OkStatus();
      }
      return Unsupported("a POSIX bracket that is not supported", at);
    }
    if (c == '[') {
      QUIRE_RETURN_IF_ERROR(Class(members, &is_negated, depth + 1));
      if (is_negated) return Unsupported("a negated class inside a class", at);
      return absl::OkStatus();
    }
    if (c == '&' && Peek(1) == '&') return Unsupported("a class intersection", at);
    if (c == '\\') {
      if (Peek(1) == 'b') {
        members->append("\\x{8}");
        pos_ += 2;
        return absl::OkStatus();
      }
      if (Peek(1) == 'S') {
        members->append(kNotSpace);
        pos_ += 2;
        return absl::OkStatus();
      }
      QUIRE_RETURN_IF_ERROR(ClassEscape(members, &is_negated));
      if (is_negated) return Unsupported("\\W, \\D or \\H inside a class", at);
      return absl::OkStatus();
    }
    if (c == '-') {
      members->push_back('-');
      ++pos_;
      return absl::OkStatus();
    }
    AppendLiteral(members);
    return absl::OkStatus();
  }

  absl::Status OpenGroup() {
    const size_t at = pos_;
    if (groups_.size() > kMaxNesting) return Unsupported("groups nested too deeply", at);
    Group group;
    group.begin = out_.size();
    ++pos_;
    if (Peek() != '?') {
      out_.push_back('(');
      groups_.push_back(group);
      return absl::OkStatus();
    }
    for (const std::string_view opening : {"?:", "?=", "?!", "?<=", "?<!", "?>"}) {
      if (in_.substr(pos_, opening.size()) != opening) continue;
      absl::StrAppend(&out_, "(", std::string(opening));
      pos_ += opening.size();
      groups_.push_back(group);
      return absl::OkStatus();
    }
    return FlagGroup(group, at);
  }

  // Handles (?i:...) and an isolated (?i), which holds to the end of the enclosing group, alternatives included.
  absl::Status FlagGroup(Group group, size_t at) {
    ++pos_;
    std::string flags;
    for (char c = Peek(); c == 'i' || c == 'm' || c == '-'; c = Peek()) {
      flags.push_back(c == 'm' ? 's' : c);
      ++pos_;
    }
    const char end = Peek();
    if (flags.empty() || (end != ':' && end != ')')) return Unsupported("a kind of group that is not supported", at);
    ++pos_;
    absl::StrAppend(&out_, "(?", flags, ":");
    if (end == ':') {
      groups_.push_back(group);
    } else {
      ++groups_.back().num_flag_groups;
      StartAtom();
    }
    return absl::OkStatus();
  }

  absl::Status CloseGroup() {
    if (groups_.size() == 1) return Unsupported("a ) without a group", pos_);
    ++pos_;
    out_.append(groups_.back().num_flag_groups + 1, ')');
    atom_ = groups_.back().begin;
    groups_.pop_back();
    return absl::OkStatus();
  }

  // Handles {n}, {n,}, {n,m} and {,m} behind an atom. Anything else is a literal brace.
  absl::Status Interval() {
    size_t end = pos_ + 1;
    std::string low;
    std::string high;
    while (end < in_.size() && absl::ascii_isdigit(static_cast<unsigned char>(in_[end]))) low.push_back(in_[end++]);
    const bool has_comma = end < in_.size() && in_[end] == ',';
    if (has_comma) ++end;
    while (has_comma && end < in_.size() && absl::ascii_isdigit(static_cast<unsigned char>(in_[end]))) {
      high.push_back(in_[end++]);
    }
    const bool is_interval = end < in_.size() && in_[end] == '}' && !(low.empty() && high.empty());
    if (!is_interval) {
      StartAtom();
      out_.append("\\{");
      ++pos_;
      return absl::OkStatus();
    }
    pos_ = end + 1;
    std::string interval = absl::StrCat("{", low.empty() ? "0" : low, has_comma ? "," : "", high, "}");
    const bool is_fixed = !has_comma;
    if (Peek() == '+' || (Peek() == '?' && is_fixed)) {
      out_.insert(atom_, "(?:");
      absl::StrAppend(&out_, interval, ")", std::string(1, in_[pos_++]));
    } else if (Peek() == '?') {
      absl::StrAppend(&out_, interval, "?");
      ++pos_;
    } else {
      out_.append(interval);
    }
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = 0;  // The last atom starts here in out_.
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::string> TranslateOniguruma(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression has ", pattern.size(), " bytes, the limit is ", kMaxPatternBytes));
  }
  QUIRE_RETURN_IF_ERROR(CheckUtf8(pattern, "regular expression"));
  return Translator(pattern).Run();
}

}  // namespace quire
