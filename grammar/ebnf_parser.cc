// SPDX-License-Identifier: Apache-2.0

#include "grammar/ebnf_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/parse_error.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_annotations.h"
#include "grammar/token_table.h"

namespace quire::grammar {
namespace {

constexpr int kMaxBodyDepth = 100;
constexpr int kMaxBodyRepetitions = 10'000;
constexpr std::string_view kSchemaDirective = "%json";

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

// Reads one grammar. Every method moves `at_` behind what it reads and behind the space that follows.
class EbnfReader {
 public:
  // With `schemas`, the JSON schemas are not read; it gets their texts, which are parts of `text`.
  explicit EbnfReader(std::string_view text, std::vector<std::string_view>* schemas = nullptr)
      : text_(text), is_lark_(text.find("::=") == text.npos), schemas_(schemas) {}

  absl::StatusOr<SyntaxTree> Run() {
    const std::string root = is_lark_ ? "start" : "root";
    RuleNamed(root, 0);
    SkipSpace();
    while (at_ < text_.size()) QUIRE_RETURN_IF_ERROR(ReadRule());
    for (const auto& [name, use] : uses_) {
      if (use.is_defined) continue;
      if (name == root && use.at == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("the rule \"", root, "\", with which the text begins, is missing"));
      }
      return ErrorAt(use.at, "the rule \"", name, "\" is not defined");
    }
    return std::move(tree_);
  }

 private:
  struct Use {
    RuleId rule;
    size_t at;  // The place where it was used first.
    bool is_defined = false;
  };

  // The error of the place that is `at` bytes behind the beginning.
  template <typename... Parts>
  absl::Status ErrorAt(size_t at, const Parts&... parts) const {
    return ErrorAtByte(text_, at, parts...);
  }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  // Returns what was read since a place, without the space behind it.
  std::string_view TextFrom(size_t begin) const {
    std::string_view text = text_.substr(begin, at_ - begin);
    while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    return text;
  }
  bool StartsWith(std::string_view prefix) const { return text_.substr(at_).substr(0, prefix.size()) == prefix; }
  bool Take(std::string_view expected) {
    if (!StartsWith(expected)) return false;
    at_ += expected.size();
    SkipSpace();
    return true;
  }

  void SkipSpace() {
    while (at_ < text_.size()) {
      if (absl::ascii_isspace(static_cast<unsigned char>(Peek()))) {
        ++at_;
      } else if (Peek() == '#' || StartsWith("//")) {
        while (at_ < text_.size() && Peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view Name() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameCharacter(Peek())) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    SkipSpace();
    return name;
  }

  // Returns whether a rule begins here: a name, with marks in Lark, and then the sign of a definition.
  bool IsAtRule() const {
    size_t at = at_;
    while (is_lark_ && at < text_.size() && (text_[at] == '?' || text_[at] == '!')) ++at;
    const size_t begin = at;
    while (at < text_.size() && IsNameCharacter(text_[at])) ++at;
    if (at == begin) return false;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at).starts_with(is_lark_ ? ":" : "::=");
  }

  RuleId RuleNamed(std::string_view name, size_t at) {
    const auto [entry, is_new] = uses_.try_emplace(std::string(name), Use{0, at});
    if (is_new) entry->second.rule = tree_.AddRule(std::string(name), /*may_be_inlined=*/true);
    return entry->second.rule;
  }

  absl::Status ReadRule() {
    const size_t begin = at_;
    if (Peek() == '%') return ErrorAt(begin, "directives of Lark (%...) are not supported");
    if (!IsAtRule()) {
      return ErrorAt(begin, "expected a rule: a name and ", is_lark_ ? "\":\"" : "\"::=\"");
    }
    while (Peek() == '?' || Peek() == '!') ++at_;
    const std::string_view name = Name();
    if (!Take(is_lark_ ? ":" : "::=")) return ErrorAt(at_, "expected the sign of a definition");
    const RuleId rule = RuleNamed(name, begin);
    if (tree_.num_rules() > kMaxRules) return ErrorAt(begin, "there are more than ", kMaxRules, " rules");
    Use& use = uses_.find(std::string(name))->second;
    if (use.is_defined) return ErrorAt(begin, "the rule \"", name, "\" is defined twice");
    use.is_defined = true;
    rule_name_ = name;
    Take("|");  // The first alternative may have a bar as well.
    QUIRE_ASSIGN_OR_RETURN(const ExprId body, Alternatives(/*depth=*/0));
    tree_.SetBody(rule, body);
    return absl::OkStatus();
  }

  absl::StatusOr<ExprId> Alternatives(int depth) {
    if (depth > kMaxBodyDepth) return ErrorAt(at_, "bodies are nested in more than ", kMaxBodyDepth, " levels");
    std::vector<ExprId> parts;
    do {
      QUIRE_ASSIGN_OR_RETURN(const ExprId part, Row(depth));
      parts.push_back(part);
    } while (Take("|"));
    return tree_.Choice(std::move(parts));
  }

  absl::StatusOr<ExprId> Row(int depth) {
    std::vector<ExprId> items;
    while (at_ < text_.size() && Peek() != '|' && Peek() != ')' && !(is_lark_ && Peek() == ']') &&
           (Peek() != '%' || IsAtSchema()) && !IsAtRule()) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId item, Item(depth));
      QUIRE_ASSIGN_OR_RETURN(const ExprId repeated, RepeatedItem(item));
      items.push_back(repeated);
    }
    return tree_.Sequence(std::move(items));
  }

  absl::StatusOr<ExprId> Item(int depth) {
    const size_t begin = at_;
    if (Peek() == '"' || (Peek() == '\'' && is_lark_)) return LiteralOrRange();
    if (Peek() == '/') return SlashedRegex();
    if (IsAtSchema()) return Schema();
    if (Peek() == '<' && is_lark_) return SpecialToken();
    if (Peek() == '[' && !is_lark_) {
      QUIRE_ASSIGN_OR_RETURN(CodePointSet set, ParseClass(text_, &at_));
      SkipSpace();
      return tree_.Set(std::move(set));
    }
    if (Peek() == '.' && !is_lark_) {
      Take(".");
      return tree_.Set(CodePointSet::All());
    }
    if (Take("(")) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId inner, Alternatives(depth + 1));
      if (!Take(")")) return ErrorAt(begin, "the \"(\" has no \")\"");
      return inner;
    }
    if (Take("[")) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId inner, Alternatives(depth + 1));
      if (!Take("]")) return ErrorAt(begin, "the \"[\" has no \"]\"");
      return tree_.Optional(inner);
    }
    if (Peek() == '-') return ErrorAt(begin, "aliases (->) are not supported");
    const std::string_view name = Name();
    if (name.empty()) return ErrorAt(begin, "expected a literal, a class, a rule or \"(\"");
    if (Peek() == '{') return ErrorIfTemplate(name, begin);
    return tree_.Use(RuleNamed(name, begin));
  }

  // In GBNF, {m,n} behind a name repeats it. Lark writes templates like this.
  absl::StatusOr<ExprId> ErrorIfTemplate(std::string_view name, size_t begin) {
    if (is_lark_) return ErrorAt(at_, "templates ({...}) are not supported");
    return tree_.Use(RuleNamed(name, begin));
  }

  absl::StatusOr<ExprId> LiteralOrRange() {
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(const std::string first, Literal());
    if (is_lark_ && Take("..")) {
      QUIRE_ASSIGN_OR_RETURN(const std::string last, Literal());
      size_t first_end = 0;
      size_t last_end = 0;
      const uint32_t low = first.empty() ? 1 : DecodeUtf8(first, &first_end);
      const uint32_t high = last.empty() ? 0 : DecodeUtf8(last, &last_end);
      if (first_end != first.size() || last_end != last.size() || low > high) {
        return ErrorAt(begin, "the range ", TextFrom(begin), " must be between two characters that ascend");
      }
      return tree_.Set(CodePointSet({{low, high}}));
    }
    return tree_.Bytes(first);
  }

  absl::StatusOr<std::string> Literal() {
    const size_t begin = at_;
    const char quote = Peek();
    if (quote != '"' && quote != '\'') return ErrorAt(at_, "expected a literal");
    ++at_;
    std::string bytes;
    while (at_ < text_.size() && Peek() != quote && Peek() != '\n') {
      if (Peek() == '\\') {
        QUIRE_RETURN_IF_ERROR(LiteralEscape(&bytes));
      } else {
        bytes += text_[at_++];
      }
    }
    if (Peek() != quote) return ErrorAt(begin, "the literal does not end in its line");
    ++at_;
    if (Peek() == 'i' && !IsNameCharacter(at_ + 1 < text_.size() ? text_[at_ + 1] : ' ')) {
      return ErrorAt(at_, "flags of literals are not supported");
    }
    SkipSpace();
    return bytes;
  }

  absl::Status LiteralEscape(std::string* bytes) {
    const size_t begin = at_++;
    const char c = Peek();
    ++at_;
    switch (c) {
      case 'n':
        *bytes += '\n';
        return absl::OkStatus();
      case 'r':
        *bytes += '\r';
        return absl::OkStatus();
      case 't':
        *bytes += '\t';
        return absl::OkStatus();
      case '"':
      case '\'':
      case '\\':
      case '/':
      case '[':
      case ']':
        *bytes += c;
        return absl::OkStatus();
      case 'x':
        return HexEscape(begin, 2, bytes);
      case 'u':
        return HexEscape(begin, 4, bytes);
      case 'U':
        return HexEscape(begin, 8, bytes);
      default:
        return ErrorAt(begin, "the escape \\", text_.substr(begin + 1, Utf8Length(c)), " is not known");
    }
  }

  absl::Status HexEscape(size_t begin, int num_digits, std::string* bytes) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const int digit = HexValue(Peek());
      if (digit < 0 || value > kMaxCodePoint) {
        return ErrorAt(begin, "the escape needs ", num_digits, " hexadecimal digits of a character");
      }
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (!CodePointSet::All().Contains(value)) return ErrorAt(begin, "the escape is not a character");
    AppendUtf8(value, bytes);
    return absl::OkStatus();
  }

  // A vocabulary may have the token as an ordinary one, or not at all, so its name may be written as text as well.
  absl::StatusOr<ExprId> SpecialToken() {
    const size_t begin = at_;
    while (at_ < text_.size() && Peek() != '>' && !absl::ascii_isspace(static_cast<unsigned char>(Peek()))) ++at_;
    if (Peek() != '>') return ErrorAt(begin, "the name of a special token must end with \">\" and have no space");
    ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    SkipSpace();
    return tree_.Choice({tree_.Bytes(SpecialTokenBytes(name)), tree_.Bytes(name)});
  }

  absl::StatusOr<ExprId> SlashedRegex() {
    const size_t begin = at_++;
    while (at_ < text_.size() && Peek() != '/' && Peek() != '\n') at_ += Peek() == '\\' ? 2 : 1;
    if (Peek() != '/') return ErrorAt(begin, "the regular expression does not end in its line");
    const std::string_view pattern = text_.substr(begin + 1, at_ - begin - 1);
    ++at_;
    if (absl::ascii_isalpha(static_cast<unsigned char>(Peek()))) {
      return ErrorAt(at_, "flags of regular expressions are not supported");
    }
    SkipSpace();
    absl::StatusOr<ExprId> expr = ParseRegex(pattern, RegexText::kPlain, &tree_);
    if (!expr.ok()) return ErrorAt(begin, "in the regular expression, ", expr.status().message());
    return expr;
  }

  bool IsAtSchema() const { return is_lark_ && StartsWith(kSchemaDirective); }

  // A JSON object stands behind the directive.
  absl::StatusOr<ExprId> Schema() {
    const size_t begin = at_;
    Take(kSchemaDirective);
    const size_t schema = at_;
    int depth = 0;
    bool is_string = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = Peek();
      if (is_string) {
        if (c == '\\') ++at_;
        if (c == '"') is_string = false;
        continue;
      }
      if (c == '"') is_string = true;
      if (c == '{') ++depth;
      if (c == '}') --depth;
      if (depth <= 0) break;
    }
    if (depth > 0 || at_ >= text_.size() || Peek() != '}') {
      return ErrorAt(begin, "%json needs a JSON schema in braces");
    }
    ++at_;
    const std::string_view text = text_.substr(schema, at_ - schema);
    SkipSpace();
    if (schemas_ != nullptr) {
      schemas_->push_back(text);
      return tree_.Empty();
    }
    absl::StatusOr<ExprId> expr = AddJsonSchema(text, &tree_, &json_);
    if (!expr.ok()) {
      return ErrorAt(begin, "in %json of the rule \"", rule_name_, "\", ", expr.status().message());
    }
    return expr;
  }

  absl::StatusOr<ExprId> RepeatedItem(ExprId item) {
    const size_t begin = at_;
    int min = 0;
    int max = kUnbounded;
    if (Take("*")) {
    } else if (Take("+")) {
      min = 1;
    } else if (!IsAtRule() && Take("?")) {
      max = 1;
    } else if (!is_lark_ && Take("{")) {
      if (!Count(&min)) return ErrorAt(begin, "a repetition must be {m}, {m,} or {m,n}");
      max = min;
      if (Take(",") && !Count(&max)) max = kUnbounded;
      if (!Take("}")) return ErrorAt(begin, "a repetition must be {m}, {m,} or {m,n}");
    } else if (is_lark_ && Take("~")) {
      if (!Count(&min)) return ErrorAt(begin, "a repetition must be ~ m or ~ m..n");
      max = min;
      if (Take("..") && !Count(&max)) return ErrorAt(begin, "a repetition must be ~ m or ~ m..n");
    } else {
      return item;
    }
    if (min > kMaxBodyRepetitions || max > kMaxBodyRepetitions) {
      return ErrorAt(begin, "the repetition ", TextFrom(begin), " has too many, at most ", kMaxBodyRepetitions,
                     " are allowed");
    }
    if (max != kUnbounded && max < min) {
      return ErrorAt(begin, "in the repetition ", TextFrom(begin), " the largest number is less than the smallest one");
    }
    return tree_.Repeat(item, min, max);
  }

  bool Count(int* out) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) return false;
    int value = 0;
    for (; absl::ascii_isdigit(static_cast<unsigned char>(Peek())); ++at_) {
      value = std::min(value * 10 + (Peek() - '0'), kMaxBodyRepetitions + 1);
    }
    *out = value;
    SkipSpace();
    return true;
  }

  const std::string_view text_;
  const bool is_lark_;
  std::vector<std::string_view>* const schemas_;
  SyntaxTree tree_;
  JsonText json_{&tree_};
  size_t at_ = 0;
  std::string_view rule_name_;  // The rule that is read has this name.
  absl::flat_hash_map<std::string, Use> uses_;
};

}  // namespace

absl::StatusOr<SyntaxTree> ParseEbnf(std::string_view text) {
  QUIRE_RETURN_IF_ERROR(CheckUtf8(text, "the grammar"));
  return EbnfReader(text).Run();
}

std::string WithoutSchemaAnnotations(std::string_view text) {
  std::vector<std::string_view> schemas;
  std::string out;
  if (!IsValidUtf8(text) || !EbnfReader(text, &schemas).Run().ok()) return std::string(text);
  const char* at = text.data();
  for (const std::string_view schema : schemas) {
    out.append(at, schema.data());
    // With "::=" the grammar would be read as GBNF. In JSON only strings have it, where this form means the same.
    out += absl::StrReplaceAll(WithoutAnnotations(schema), {{"::=", "\\u003a:="}});
    at = schema.data() + schema.size();
  }
  out.append(at, text.data() + text.size());
  return out;
}

}  // namespace quire::grammar
