// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_TOKEN_CURSOR_H_
#define QUIRE_KV_MANAGER_JINJA_TOKEN_CURSOR_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/jinja/lexer.h"

namespace quire::jinja {

// The place of a parser in the tokens of a template. It does not move behind the last token, which is the end. Errors
// are INVALID_ARGUMENT, begin with "line N: ", and say what was expected and what was found.
class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  void Advance() {
    if (next_ + 1 < tokens_.size()) ++next_;
  }
  bool IsOperator(std::string_view text) const {
    return current().kind == Token::Kind::kOperator && current().text == text;
  }
  bool IsName(std::string_view text) const { return current().kind == Token::Kind::kName && current().text == text; }
  bool SkipOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    Advance();
    return true;
  }
  bool SkipName(std::string_view text) {
    if (!IsName(text)) return false;
    Advance();
    return true;
  }

  template <typename... Parts>
  absl::Status ErrorAt(int line, const Parts&... parts) const {
    return InvalidArgument("line ", line, ": ", parts...);
  }
  absl::Status Expected(std::string_view what) const {
    return ErrorAt(current().line, "expected ", std::string(what), ", found ", Describe(current()));
  }
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kText:
        return "text";
      case Token::Kind::kString:
        return "a string";
      case Token::Kind::kEnd:
        return token.text;
      default:
        return absl::StrCat("'", token.text, "'");
    }
  }
  absl::Status ExpectOperator(std::string_view text) {
    return SkipOperator(text) ? absl::OkStatus() : Expected(absl::StrCat("'", std::string(text), "'"));
  }
  absl::StatusOr<std::string> ExpectName(std::string_view what) {
    if (current().kind != Token::Kind::kName) return Expected(what);
    std::string name = current().text;
    Advance();
    return name;
  }
  absl::Status ExpectTagEnd() {
    if (current().kind != Token::Kind::kTagEnd) return Expected("the end of the tag");
    Advance();
    return absl::OkStatus();
  }

 private:
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_TOKEN_CURSOR_H_
