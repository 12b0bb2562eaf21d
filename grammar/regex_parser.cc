// SPDX-License-Identifier: Apache-2.0

#include "grammar/regex_parser.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/character_dfa.h"
#include "grammar/character_properties.h"
#include "grammar/parse_error.h"
#include "grammar/regex_lookahead.h"

namespace quire::grammar {
namespace {

constexpr int kMaxRegexDepth = 100;
constexpr int kMaxRepetitions = 10'000;

CodePointSet Digits() {
  return CodePointSet({{'0', '9'}});
}

CodePointSet WordCharacters() {
  return CodePointSet({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}});
}

CodePointSet Spaces() {
  return CodePointSet({{9, 13},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}

// `.` matches everything but the ends of lines.
CodePointSet AnyInLine() {
  return CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
}

// What the flags of an expression, or of a group in it, say.
struct RegexFlags {
  bool ignores_case = false;   // i
  bool dot_has_lines = false;  // s: `.` matches the ends of lines, too.
};

// Reads letters of flags from `*at` on, and "-" with those that are taken away. Returns nothing if there are others.
std::optional<RegexFlags> ReadFlags(std::string_view pattern, RegexFlags flags, size_t* at) {
  bool value = true;
  for (; *at < pattern.size(); ++*at) {
    const char c = pattern[*at];
    if (c == '-' && value) {
      value = false;
    } else if (c == 'i') {
      flags.ignores_case = value;
    } else if (c == 's') {
      flags.dot_has_lines = value;
    } else {
      return flags;
    }
  }
  return std::nullopt;
}

// Reads flags for the whole expression, such as (?i), which Python has at its beginning.
RegexFlags ReadGlobalFlags(std::string_view pattern, size_t* at) {
  if (!pattern.starts_with("(?")) return {};
  size_t end = 2;
  const std::optional<RegexFlags> flags = ReadFlags(pattern, {}, &end);
  const bool has_flags = flags.has_value() && end > 2 && pattern[2] != '-' && pattern.substr(end).starts_with(')');
  *at = has_flags ? end + 1 : 0;
  return has_flags ? *flags : RegexFlags();
}

// Adds the other case of letters of ASCII.
CodePointSet WithCases(const CodePointSet& set) {
  std::vector<CodePointRange> ranges = set.ranges();
  for (uint32_t c = 'a'; c <= 'z'; ++c) {
    const uint32_t upper = c - 'a' + 'A';
    if (set.Contains(c)) ranges.push_back({upper, upper});
    if (set.Contains(upper)) ranges.push_back({c, c});
  }
  return CodePointSet(std::move(ranges));
}

// The characters that are no letters of ASCII, and that some implementations take for cases of i, s and k.
CodePointSet UnusualCases() {
  return CodePointSet({{0x130, 0x131}, {0x17F, 0x17F}, {0x212A, 0x212A}});
}

// Classes of POSIX, with what an expression has in their place.
constexpr std::pair<std::string_view, std::string_view> kPosixClasses[] = {
    {"alnum", "0-9A-Za-z"},
    {"alpha", "A-Za-z"},
    {"blank", "\\t "},
    {"cntrl", "\\x00-\\x1f\\x7f"},
    {"digit", "0-9"},
    {"graph", "!-~"},
    {"lower", "a-z"},
    {"print", " -~"},
    {"punct", "!-/:-@\\[-`{-~"},
    {"space", "\\s"},
    {"upper", "A-Z"},
    {"word", "\\w"},
    {"xdigit", "0-9A-Fa-f"},
};

// An expression or a part of it.
struct RegexPart {
  ExprId expr;
  // If no text matches: the place of a class in brackets without a character, which is the reason.
  std::optional<size_t> empty_class = std::nullopt;
};

// Says which part of a text matches an expression.
enum class RegexSpan {
  kWhole,
  kPrefix,  // It begins where the text begins.
  kSearch,
};

// Reads one expression. Every method moves `at_` behind what it reads.
//
// ^ where the expression begins and $ where it ends need no assertion. With any other assertion, needs_assertions() is
// true at the end, and the expression has to be read again with Assertions::kWritten into a tree for a CharacterDfa.
class RegexReader {
 public:
  enum class Assertions { kLeftOut, kWritten };

  RegexReader(std::string_view pattern, RegexText text, size_t at, SyntaxTree* tree,
              Assertions assertions = Assertions::kLeftOut, RegexFlags flags = {})
      : pattern_(pattern), text_(text), tree_(tree), at_(at), assertions_(assertions), flags_(flags) {}

  absl::StatusOr<RegexPart> Whole(RegexSpan span) {
    is_search_ = span == RegexSpan::kSearch;
    QUIRE_ASSIGN_OR_RETURN(RegexPart whole, Alternatives(/*depth=*/0));
    if (at_ < pattern_.size()) return ErrorAt(at_, "a \")\" has no \"(\"");
    if (assertions_ == Assertions::kLeftOut || span == RegexSpan::kWhole) return whole;
    whole.expr = tree_->Sequence({is_search_ ? Anything() : tree_->Empty(), whole.expr, Anything()});
    return whole;
  }

  bool needs_assertions() const { return needs_assertions_; }

  absl::StatusOr<CodePointSet> Class() {
    QUIRE_RETURN_IF_ERROR(RefusePosixClass());
    const size_t begin = at_++;
    const bool is_negated = Take('^');
    has_other_letters_ = false;
    std::vector<CodePointRange> ranges;
    while (!Take(']')) {
      if (at_ >= pattern_.size()) return ErrorAt(begin, "the class has no \"]\"");
      QUIRE_RETURN_IF_ERROR(RefusePosixClass());
      CodePointSet first;
      const size_t first_at = at_;
      QUIRE_RETURN_IF_ERROR(ClassMember(&first));
      const bool is_range = Peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (is_range) {
        const size_t dash = at_++;
        CodePointSet last;
        QUIRE_RETURN_IF_ERROR(ClassMember(&last));
        if (!IsOneCharacter(first) || !IsOneCharacter(last)) {
          return ErrorAt(dash, "the range ", TextFrom(first_at), " must be between two characters");
        }
        const CodePointRange range{first.ranges()[0].first, last.ranges()[0].first};
        if (range.first > range.last) {
          return ErrorAt(dash, "the range ", TextFrom(first_at), " ends before it begins");
        }
        ranges.push_back(range);
        continue;
      }
      ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
    }
    const CodePointSet set(std::move(ranges));
    if (!flags_.ignores_case) return is_negated ? set.Complement() : set;
    const CodePointSet others = WithCases(set).Complement();
    if (!is_negated) return others.Complement();
    if (has_other_letters_) {
      return ErrorAt(begin, "with the flag i, a class that begins with ^ may name characters of ASCII only");
    }
    return others.Intersection(UnusualCases().Complement());
  }

  size_t at() const { return at_; }

 private:
  // The error of the place that is `at` bytes behind the beginning.
  template <typename... Parts>
  absl::Status ErrorAt(size_t at, const Parts&... parts) const {
    return ErrorAtByte(pattern_, at, parts...);
  }

  char Peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }
  std::string_view TextFrom(size_t begin) const { return pattern_.substr(begin, at_ - begin); }
  bool Take(char c) {
    if (at_ >= pattern_.size() || pattern_[at_] != c) return false;
    ++at_;
    return true;
  }
  static bool IsOneCharacter(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  // In ECMAScript, [[:alpha:]] is one of the characters [:alph and a bracket behind it, which nobody means.
  absl::Status RefusePosixClass() const {
    const std::string_view rest = pattern_.substr(at_);
    if (!rest.starts_with("[:")) return absl::OkStatus();
    const size_t begin = rest.starts_with("[:^") ? 3 : 2;
    for (const auto& [name, instead] : kPosixClasses) {
      if (!rest.substr(begin).starts_with(name) || !rest.substr(begin + name.size()).starts_with(":]")) continue;
      return ErrorAt(at_, rest.substr(0, begin + name.size() + 2),
                     " is a class of POSIX, which is not supported; write ", begin == 3 ? "[^" : "[", instead, "]");
    }
    return absl::OkStatus();
  }

  // No text matches if none matches any of the alternatives.
  absl::StatusOr<RegexPart> Alternatives(int depth) {
    if (depth > kMaxRegexDepth) return ErrorAt(at_, "groups are nested in more than ", kMaxRegexDepth, " levels");
    std::vector<ExprId> exprs;
    std::optional<size_t> empty_class;
    bool is_empty = true;
    do {
      QUIRE_ASSIGN_OR_RETURN(const RegexPart part, Terms(depth));
      exprs.push_back(part.expr);
      is_empty = is_empty && part.empty_class.has_value();
      if (!empty_class.has_value()) empty_class = part.empty_class;
    } while (Take('|'));
    return RegexPart{tree_->Choice(std::move(exprs)), is_empty ? empty_class : std::nullopt};
  }

  // With is_search_, an alternative of the whole expression has other characters where it has no anchor.
  absl::StatusOr<RegexPart> Terms(int depth) {
    std::vector<ExprId> terms;
    std::optional<size_t> empty_class;
    bool is_anchored = false;
    bool ends_anchored = false;
    while (at_ < pattern_.size() && Peek() != '|' && Peek() != ')') {
      needs_assertions_ |= ends_anchored;  // Something follows a $.
      if (const std::optional<Assertion> assertion = TakeAssertion()) {
        const bool is_begin = *assertion == Assertion::kBegin && terms.empty();
        needs_assertions_ |= depth > 0 || !(is_begin || *assertion == Assertion::kEnd);
        is_anchored |= is_begin;
        ends_anchored |= *assertion == Assertion::kEnd;
        if (assertions_ == Assertions::kWritten) terms.push_back(tree_->Assert(*assertion));
        continue;
      }
      QUIRE_ASSIGN_OR_RETURN(const RegexPart atom, Atom(depth));
      QUIRE_ASSIGN_OR_RETURN(const RegexPart term, Repetition(atom));
      terms.push_back(term.expr);
      if (!empty_class.has_value()) empty_class = term.empty_class;
    }
    if (is_search_ && depth == 0 && assertions_ == Assertions::kLeftOut) {
      if (!is_anchored) terms.insert(terms.begin(), Anything());
      if (!ends_anchored) terms.push_back(Anything());
    }
    return RegexPart{tree_->Sequence(std::move(terms)), empty_class};
  }

  ExprId Anything() { return tree_->Repeat(Characters(CodePointSet::All(), text_, tree_), 0, kUnbounded); }

  std::optional<Assertion> TakeAssertion() {
    if (Take('^')) return Assertion::kBegin;
    if (Take('$')) return Assertion::kEnd;
    // Python has \A and \Z for the ends of a text, and others \z.
    constexpr std::pair<std::string_view, Assertion> kEscapes[] = {{"\\b", Assertion::kBoundary},
                                                                   {"\\B", Assertion::kNoBoundary},
                                                                   {"\\A", Assertion::kBegin},
                                                                   {"\\Z", Assertion::kEnd},
                                                                   {"\\z", Assertion::kEnd}};
    for (const auto& [escape, assertion] : kEscapes) {
      if (pattern_.substr(at_, escape.size()) != escape) continue;
      at_ += escape.size();
      return assertion;
    }
    return std::nullopt;
  }

  absl::StatusOr<RegexPart> Atom(int depth) {
    const size_t begin = at_;
    switch (Peek()) {
      case '(':
        return Group(depth);
      case '[': {
        QUIRE_ASSIGN_OR_RETURN(const CodePointSet set, Class());
        return RegexPart{Characters(set, text_, tree_), set.empty() ? std::optional(begin) : std::nullopt};
      }
      case '.':
        ++at_;
        return RegexPart{Characters(flags_.dot_has_lines ? CodePointSet::All() : AnyInLine(), text_, tree_)};
      case '\\': {
        CodePointSet set;
        QUIRE_RETURN_IF_ERROR(Escape(&set));
        return RegexPart{Characters(flags_.ignores_case ? WithCases(set) : set, text_, tree_)};
      }
      case '*':
      case '+':
      case '?':
      case '{':
        return ErrorAt(begin, "\"", std::string(1, Peek()), "\" repeats nothing");
      default: {
        const uint32_t c = DecodeUtf8(pattern_, &at_);
        const CodePointSet set({{c, c}});
        return RegexPart{Characters(flags_.ignores_case ? WithCases(set) : set, text_, tree_)};
      }
    }
  }

  absl::StatusOr<RegexPart> Group(int depth) {
    const size_t begin = at_++;
    const RegexFlags outer = flags_;
    if (Take('?')) QUIRE_RETURN_IF_ERROR(GroupKind(begin));
    QUIRE_ASSIGN_OR_RETURN(const RegexPart inner, Alternatives(depth + 1));
    if (!Take(')')) return ErrorAt(begin, "the group has no \")\"");
    flags_ = outer;
    return inner;
  }

  // Reads what follows "(?": a name, also as Python writes it (?P<name>...), or flags for the group.
  absl::Status GroupKind(size_t begin) {
    const bool is_of_python = pattern_.substr(at_).starts_with("P<");
    if (is_of_python) ++at_;
    if (Take('<') && (is_of_python || (Peek() != '=' && Peek() != '!'))) {
      while (at_ < pattern_.size() && Peek() != '>') ++at_;
      return Take('>') ? absl::OkStatus() : ErrorAt(begin, "the name of the group has no \">\"");
    }
    size_t end = at_;
    const std::optional<RegexFlags> flags = ReadFlags(pattern_, flags_, &end);
    if (!flags.has_value() || pattern_[end] != ':') return ErrorAt(begin, WhatIsNotSupported());
    flags_ = *flags;
    at_ = end + 1;
    return absl::OkStatus();
  }

  // Names the extension behind "(?", or behind "(?<" for a lookbehind.
  std::string WhatIsNotSupported() const {
    const char c = Peek();
    if (c == '=' || c == '!') return "lookahead and lookbehind are not supported";
    if (c == 'P') return "references to groups are not supported";
    if (c == '>') return "atomic groups are not supported; write (?:...)";
    if (c == '-' || absl::ascii_isalpha(static_cast<unsigned char>(c))) {
      return "only the flags i and s are supported, at the beginning of the expression or for a group, as in (?i:...)";
    }
    return "a group that begins with (? must be (?:...) or (?<name>...)";
  }

  absl::StatusOr<RegexPart> Repetition(const RegexPart& atom) {
    const size_t begin = at_;
    int min = 0;
    int max = kUnbounded;
    if (Take('*')) {
    } else if (Take('+')) {
      min = 1;
    } else if (Take('?')) {
      max = 1;
    } else if (Take('{')) {
      if (!Number(&min)) return ErrorAt(begin, "a repetition must be {m}, {m,} or {m,n}");
      max = min;
      if (Take(',')) {
        max = kUnbounded;
        if (Peek() != '}' && !Number(&max)) return ErrorAt(begin, "a repetition must be {m}, {m,} or {m,n}");
      }
      if (!Take('}')) return ErrorAt(begin, "a repetition must be {m}, {m,} or {m,n}");
      if (min > kMaxRepetitions || max > kMaxRepetitions) {
        return ErrorAt(begin, "the repetition ", TextFrom(begin), " has too many, at most ", kMaxRepetitions,
                       " are allowed");
      }
      if (max != kUnbounded && max < min) {
        return ErrorAt(begin, "in the repetition ", TextFrom(begin),
                       " the largest number is less than the smallest one");
      }
    } else {
      return atom;
    }
    Take('?');  // A lazy repetition matches the same texts.
    if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
      return ErrorAt(at_, "a repetition cannot be repeated");
    }
    return RegexPart{tree_->Repeat(atom.expr, min, max), min > 0 ? atom.empty_class : std::nullopt};
  }

  bool Number(int* out) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) return false;
    int64_t value = 0;
    for (; absl::ascii_isdigit(static_cast<unsigned char>(Peek())); ++at_) {
      value = std::min<int64_t>(value * 10 + (Peek() - '0'), kMaxRepetitions + 1);
    }
    *out = static_cast<int>(value);
    return true;
  }

  absl::Status ClassMember(CodePointSet* out) {
    if (Peek() == '\\') {
      QUIRE_RETURN_IF_ERROR(Escape(out));
    } else {
      const uint32_t c = DecodeUtf8(pattern_, &at_);
      *out = CodePointSet({{c, c}});
    }
    has_other_letters_ |= IsOneCharacter(*out) && out->ranges()[0].first >= 0x80;
    return absl::OkStatus();
  }

  absl::Status Escape(CodePointSet* out) {
    const size_t begin = at_++;
    if (at_ >= pattern_.size()) return ErrorAt(begin, "nothing follows the \"\\\"");
    const char c = pattern_[at_];
    if (static_cast<unsigned char>(c) >= 0x80) {
      return ErrorAt(begin, "\"\\\" before a character that needs no escape");
    }
    ++at_;
    const auto one = [out](uint32_t code_point) {
      *out = CodePointSet({{code_point, code_point}});
      return absl::OkStatus();
    };
    switch (c) {
      case 'd':
        *out = Digits();
        return absl::OkStatus();
      case 'D':
        *out = Digits().Complement();
        return absl::OkStatus();
      case 'w':
        *out = WordCharacters();
        return absl::OkStatus();
      case 'W':
        *out = WordCharacters().Complement();
        if (flags_.ignores_case) *out = out->Intersection(UnusualCases().Complement());
        return absl::OkStatus();
      case 's':
        *out = Spaces();
        return absl::OkStatus();
      case 'S':
        *out = Spaces().Complement();
        return absl::OkStatus();
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return Hex(begin, 2, out);
      case 'u':
        return Unicode(begin, out);
      case 'c':
        if (!absl::ascii_isalpha(static_cast<unsigned char>(Peek()))) return ErrorAt(begin, "\\c needs a letter");
        return one(static_cast<uint32_t>(pattern_[at_++]) & 31);
      case 'b':
        return one('\b');  // In a class, because elsewhere it is an assertion.
      case 'p':
      case 'P':
        return Property(begin, c == 'P', out);
      case 'k':
        return ErrorAt(begin, "references to groups are not supported");
      default:
        break;
    }
    if (c == '0' && !absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) return one(0);
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      return ErrorAt(begin, "references to groups are not supported");
    }
    if (absl::ascii_isalpha(static_cast<unsigned char>(c))) {
      return ErrorAt(begin, "\\", std::string(1, c), " is not supported");
    }
    return one(static_cast<uint32_t>(c));
  }

  // Reads the name of a property in braces.
  absl::Status Property(size_t begin, bool is_negated, CodePointSet* out) {
    const size_t end = Peek() == '{' ? pattern_.find('}', at_) : pattern_.npos;
    if (end == pattern_.npos) return ErrorAt(begin, "\\p needs a name in braces");
    const std::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    const std::optional<CodePointSet> set = CharactersWith(name);
    if (!set.has_value()) {
      return ErrorAt(begin, "of the properties of characters (\\p), only general categories such as \\p{L} and ",
                     "\\p{Lu} are supported");
    }
    if (is_negated && flags_.ignores_case) return ErrorAt(begin, "\\P is not supported with the flag i");
    at_ = end + 1;
    has_other_letters_ = true;
    *out = is_negated ? set->Complement() : *set;
    return absl::OkStatus();
  }

  absl::Status Unicode(size_t begin, CodePointSet* out) {
    if (!Take('{')) {
      QUIRE_RETURN_IF_ERROR(Hex(begin, 4, out));
      return absl::OkStatus();
    }
    uint64_t value = 0;
    const size_t first = at_;
    for (; HexValue(Peek()) >= 0 && value <= kMaxCodePoint; ++at_) {
      value = value * 16 + static_cast<uint32_t>(HexValue(Peek()));
    }
    if (at_ == first || value > kMaxCodePoint || !Take('}')) return ErrorAt(begin, "\\u{ needs a code point and }");
    *out = CodePointSet({{static_cast<uint32_t>(value), static_cast<uint32_t>(value)}});
    return out->empty() ? ErrorAt(begin, "a surrogate is not a character") : absl::OkStatus();
  }

  absl::Status Hex(size_t begin, int num_digits, CodePointSet* out) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const int digit = HexValue(Peek());
      if (digit < 0) return ErrorAt(begin, "\\x needs two and \\u needs four hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    *out = CodePointSet({{value, value}});
    return out->empty() ? ErrorAt(begin, "a surrogate is not a character") : absl::OkStatus();
  }

  const std::string_view pattern_;
  const RegexText text_;
  SyntaxTree* const tree_;
  size_t at_;
  const Assertions assertions_;
  RegexFlags flags_;
  bool has_other_letters_ = false;  // The last class names characters that are not of ASCII.
  bool needs_assertions_ = false;
  bool is_search_ = false;
};

// Reads a part of an expression with its assertions, and sets `*empty_class` to its RegexPart::empty_class.
absl::StatusOr<CharacterDfa> TextsOf(std::string_view pattern, size_t begin, size_t end, RegexSpan span,
                                     RegexFlags flags, int64_t* steps, std::optional<size_t>* empty_class) {
  SyntaxTree plain;
  RegexReader reader(pattern.substr(0, end), RegexText::kPlain, begin, &plain, RegexReader::Assertions::kWritten,
                     flags);
  QUIRE_ASSIGN_OR_RETURN(const RegexPart part, reader.Whole(span));
  *empty_class = part.empty_class;
  absl::StatusOr<CharacterDfa> dfa = CharacterDfa::Of(plain, part.expr, steps);
  if (!dfa.ok()) return ErrorAtByte(pattern, begin, "with its assertions, ", dfa.status().message());
  return dfa;
}

// The texts that fit all lookaheads and the rest of an expression.
absl::StatusOr<RegexPart> ReadLookaheads(std::string_view pattern, const LeadingLookaheads& lookaheads, RegexText text,
                                         bool is_search, RegexFlags flags, SyntaxTree* tree) {
  int64_t* const steps = tree->character_steps();
  std::optional<size_t> empty_class, unused;
  const RegexSpan span = is_search ? RegexSpan::kPrefix : RegexSpan::kWhole;
  QUIRE_ASSIGN_OR_RETURN(CharacterDfa texts,
                         TextsOf(pattern, lookaheads.rest, pattern.size(), span, flags, steps, &empty_class));
  for (const Lookahead& one : lookaheads.list) {
    QUIRE_ASSIGN_OR_RETURN(const CharacterDfa seen,
                           TextsOf(pattern, one.begin, one.end, RegexSpan::kPrefix, flags, steps, &unused));
    absl::StatusOr<CharacterDfa> both = texts.Intersection(one.is_negated ? seen.Complement() : seen, steps);
    if (!both.ok()) return ErrorAtByte(pattern, one.begin, "with this lookahead, ", both.status().message());
    texts = *std::move(both);
  }
  return RegexPart{texts.AddTo(text, tree), empty_class};
}

absl::StatusOr<RegexPart> ReadWhole(std::string_view pattern, RegexText text, bool is_search, SyntaxTree* tree) {
  QUIRE_RETURN_IF_ERROR(CheckUtf8(pattern, "the regular expression"));
  size_t begin = 0;
  const RegexFlags flags = ReadGlobalFlags(pattern, &begin);
  const LeadingLookaheads lookaheads = FindLeadingLookaheads(pattern, begin, is_search);
  if (!lookaheads.list.empty()) return ReadLookaheads(pattern, lookaheads, text, is_search, flags, tree);
  const RegexSpan span = is_search ? RegexSpan::kSearch : RegexSpan::kWhole;
  RegexReader reader(pattern, text, begin, tree, RegexReader::Assertions::kLeftOut, flags);
  QUIRE_ASSIGN_OR_RETURN(RegexPart whole, reader.Whole(span));
  if (!reader.needs_assertions()) return whole;
  QUIRE_ASSIGN_OR_RETURN(const CharacterDfa dfa, TextsOf(pattern, begin, pattern.size(), span, flags,
                                                         tree->character_steps(), &whole.empty_class));
  return RegexPart{dfa.AddTo(text, tree), whole.empty_class};
}

// The escape of a character that JSON strings cannot have as it is.
std::string JsonEscape(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return absl::StrCat("\\u", absl::Hex(c, absl::kZeroPad4));
  }
}

}  // namespace

absl::StatusOr<ExprId> ParseRegex(std::string_view pattern, RegexText text, SyntaxTree* tree) {
  QUIRE_ASSIGN_OR_RETURN(const RegexPart whole, ReadWhole(pattern, text, /*is_search=*/false, tree));
  return whole.expr;
}

absl::StatusOr<ExprId> ParseMatchableRegex(std::string_view pattern, RegexText text, SyntaxTree* tree) {
  QUIRE_ASSIGN_OR_RETURN(const RegexPart whole, ReadWhole(pattern, text, /*is_search=*/false, tree));
  if (!whole.empty_class.has_value()) return whole.expr;
  return ErrorAtByte(pattern, *whole.empty_class, "no text matches, because no character is in this class");
}

absl::StatusOr<ExprId> ParseRegexSearch(std::string_view pattern, RegexText text, SyntaxTree* tree) {
  QUIRE_ASSIGN_OR_RETURN(const RegexPart whole, ReadWhole(pattern, text, /*is_search=*/true, tree));
  return whole.expr;
}

ExprId Characters(const CodePointSet& set, RegexText text, SyntaxTree* tree) {
  if (text == RegexText::kPlain) return tree->Set(set);
  const CodePointSet escaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  std::vector<ExprId> parts = {tree->Set(set.Intersection(escaped.Complement()))};
  const CodePointSet with_escape = set.Intersection(escaped);
  for (const auto& [first, last] : with_escape.ranges()) {
    for (uint32_t c = first; c <= last; ++c) parts.push_back(tree->Bytes(JsonEscape(c)));
  }
  return tree->Choice(std::move(parts));
}

absl::StatusOr<CodePointSet> ParseClass(std::string_view pattern, size_t* at) {
  SyntaxTree unused;
  RegexReader reader(pattern, RegexText::kPlain, *at, &unused);
  QUIRE_ASSIGN_OR_RETURN(CodePointSet set, reader.Class());
  *at = reader.at();
  return set;
}

}  // namespace quire::grammar
