// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_EXPRESSION_PARSER_H_
#define QUIRE_KV_MANAGER_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/jinja/ast.h"
#include "kv_manager/jinja/token_cursor.h"

namespace quire::jinja {

// The deepest nesting of expressions.
constexpr int kMaxExpressionDepth = 100;

// Parses expressions by recursive descent, from the operators that bind least to those that bind most.
class ExpressionParser : public TokenCursor {
 public:
  using Kind = Expression::Kind;
  using OrExpression = absl::StatusOr<ExpressionPtr>;

  using TokenCursor::TokenCursor;
  virtual ~ExpressionParser() = default;

  // Makes a node with the line of the current token.
  ExpressionPtr New(Kind kind) const;
  // Adds an operand, which may be null. Refuses an expression that is nested too deep.
  absl::Status Adopt(Expression* node, ExpressionPtr operand);
  // Parses an expression. Without a condition, it ends before the word `if`.
  OrExpression ParseExpression(bool with_condition = true);
  // Parses an expression, or several with commas between them, which are a tuple.
  OrExpression ParseTuple(bool with_condition, bool has_parentheses);
  // Parses a filter of `value`. The current token is the bar. In a filter block, `value` is null and the current token
  // is the name.
  OrExpression ParseFilter(ExpressionPtr value);

 protected:
  // Counts the recursion of the parser itself.
  struct Nested {
    explicit Nested(int* depth) : depth_(depth) { ++*depth_; }
    ~Nested() { --*depth_; }
    int* depth_;
  };

  // Is called with each variable that an expression reads.
  virtual void NoteUse(std::string_view name) = 0;

  int condition_depth_ = 0;  // Says how many tags {% if %} are open. Inside, unknown filters and tests are allowed.
  bool ends_at_recursive_ = false;  // Whether a tuple ends before the word `recursive`, as in {% for %}.

 private:
  absl::Status TooDeep(int line) const;
  OrExpression ParseCondition();
  OrExpression Binary(Kind kind, ExpressionPtr left, ExpressionPtr right);
  OrExpression ParseOr();
  OrExpression ParseAnd();
  OrExpression ParseNot();
  bool SkipComparison(Operator* found);
  OrExpression ParseCompare();
  OrExpression BinaryOperator(Operator op, ExpressionPtr left, ExpressionPtr right);
  OrExpression ParseSum();
  OrExpression ParseConcat();
  OrExpression ParseProduct();
  OrExpression ParsePower();
  OrExpression ParseUnary(bool with_filter);
  OrExpression ParsePrimary();
  OrExpression ParseList(ExpressionPtr node);
  OrExpression ParseDict(ExpressionPtr node);
  bool EndsTuple() const;
  OrExpression ParsePostfix(ExpressionPtr node);
  OrExpression ParseAttribute(ExpressionPtr object);
  OrExpression ParseSubscript(ExpressionPtr object);
  OrExpression ParseCall(ExpressionPtr callee);
  absl::Status AdoptArgument(Expression* node, ExpressionPtr argument, ExpressionPtr* slot);
  absl::Status ParseArguments(Expression* node);
  OrExpression ParseFilters(ExpressionPtr node);
  // A name with dots.
  absl::StatusOr<std::string> ParseDottedName(std::string_view what);
  OrExpression ParseTest(ExpressionPtr value);

  int expression_depth_ = 0;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_EXPRESSION_PARSER_H_
