// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_JSON_TEXT_H_
#define QUIRE_GRAMMAR_JSON_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "grammar/syntax_tree.h"

namespace quire::grammar {

// Writes the parts of JSON texts as expressions. Between two parts there is nothing, one space, or the end of a line
// with up to 20 spaces or tabs. Numbers have at most kMaxNumberDigits before the point, and the same number behind it.
class JsonText {
 public:
  explicit JsonText(SyntaxTree* tree) : tree_(tree) {}

  // Space between two parts, which may be nothing.
  ExprId Space();
  // Any value, any string, any number, and any integer.
  ExprId AnyValue();
  ExprId String();
  ExprId Number();
  ExprId Integer();
  // A string of min .. max characters, and at most kMaxLongRepeat. Characters that need an escape of six bytes are left
  // out.
  ExprId StringOfLength(int min, int max);
  // A string that equals none of the names. Characters that need an escape are left out.
  ExprId KeyExcept(const std::vector<std::string>& names);

 private:
  ExprId Literal(std::string_view bytes) { return tree_->Bytes(bytes); }
  ExprId Digits(char first, char last) {
    return tree_->Set(CodePointSet({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}}));
  }
  // A rule that is made once.
  template <typename Body>
  ExprId Shared(RuleId* rule, const char* name, Body body);

  SyntaxTree* const tree_;
  RuleId space_ = -1;
  RuleId value_ = -1;
  RuleId string_ = -1;
  RuleId number_ = -1;
  RuleId integer_ = -1;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_JSON_TEXT_H_
