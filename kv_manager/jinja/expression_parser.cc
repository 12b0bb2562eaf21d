// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/expression_parser.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "kv_manager/jinja/filters.h"
#include "kv_manager/jinja/predicates.h"

namespace quire::jinja {

ExpressionPtr ExpressionParser::New(Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

absl::Status ExpressionParser::Adopt(Expression* node, ExpressionPtr operand) {
  if (operand != nullptr) {
    node->depth = std::max(node->depth, operand->depth + 1);
    if (node->depth > kMaxExpressionDepth) return TooDeep(operand->line);
  }
  node->operands.push_back(std::move(operand));
  return absl::OkStatus();
}

absl::Status ExpressionParser::TooDeep(int line) const {
  return ErrorAt(line, "an expression is nested deeper than ", kMaxExpressionDepth, " levels");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseExpression(bool with_condition) {
  const Nested nested(&expression_depth_);
  if (expression_depth_ > kMaxExpressionDepth) return TooDeep(current().line);
  return with_condition ? ParseCondition() : ParseOr();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCondition() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (IsName("if")) {
    ExpressionPtr node = New(Kind::kCondition);
    Advance();
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr test, ParseOr());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      QUIRE_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(value)));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(test)));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(otherwise)));
    value = std::move(node);
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Binary(Kind kind, ExpressionPtr left, ExpressionPtr right) {
  ExpressionPtr node = New(kind);
  node->line = left->line;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(left)));
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(right)));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (SkipName("or")) {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    QUIRE_ASSIGN_OR_RETURN(left, Binary(Kind::kOr, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (SkipName("and")) {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    QUIRE_ASSIGN_OR_RETURN(left, Binary(Kind::kAnd, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nested nested(&expression_depth_);
  if (expression_depth_ > kMaxExpressionDepth) return TooDeep(current().line);
  ExpressionPtr node = New(Kind::kNot);
  Advance();
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(operand)));
  return node;
}

bool ExpressionParser::SkipComparison(Operator* found) {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},          {"!=", Operator::kNotEqual}, {"<=", Operator::kLessOrEqual},
      {">=", Operator::kGreaterOrEqual}, {"<", Operator::kLess},      {">", Operator::kGreater}};
  for (const auto& [text, op] : kOperators) {
    if (!SkipOperator(text)) continue;
    *found = op;
    return true;
  }
  if (SkipName("in")) {
    *found = Operator::kIn;
    return true;
  }
  if (!IsName("not") || ahead().kind != Token::Kind::kName || ahead().text != "in") return false;
  Advance();
  Advance();
  *found = Operator::kNotIn;
  return true;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseSum());
  Operator op;
  if (!SkipComparison(&op)) return left;
  ExpressionPtr node = New(Kind::kCompare);
  node->line = left->line;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(left)));
  do {
    node->operators.push_back(op);
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(right)));
  } while (SkipComparison(&op));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::BinaryOperator(Operator op, ExpressionPtr left, ExpressionPtr right) {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr node, Binary(Kind::kBinary, std::move(left), std::move(right)));
  node->operators.push_back(op);
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
  while (IsOperator("+") || IsOperator("-")) {
    const Operator op = IsOperator("+") ? Operator::kAdd : Operator::kSubtract;
    Advance();
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
    QUIRE_ASSIGN_OR_RETURN(left, BinaryOperator(op, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseProduct());
  if (!IsOperator("~")) return left;
  ExpressionPtr node = New(Kind::kConcat);
  node->line = left->line;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(left)));
  while (SkipOperator("~")) {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseProduct());
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(right)));
  }
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const Operator op = IsOperator("*")    ? Operator::kMultiply
                        : IsOperator("/")  ? Operator::kDivide
                        : IsOperator("//") ? Operator::kFloorDivide
                                           : Operator::kModulo;
    Advance();
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    QUIRE_ASSIGN_OR_RETURN(left, BinaryOperator(op, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(true));
  while (SkipOperator("**")) {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(true));
    QUIRE_ASSIGN_OR_RETURN(left, BinaryOperator(Operator::kPower, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filter) {
  const Nested nested(&expression_depth_);
  if (expression_depth_ > kMaxExpressionDepth) return TooDeep(current().line);
  ExpressionPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    node = New(IsOperator("-") ? Kind::kNegate : Kind::kPlus);
    Advance();
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(operand)));
  } else {
    QUIRE_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  QUIRE_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (with_filter) return ParseFilters(std::move(node));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const Token& token = current();
  ExpressionPtr node = New(Kind::kConstant);
  switch (token.kind) {
    case Token::Kind::kName:
      if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
        node->constant = Value(token.text == "true" || token.text == "True");
      } else if (token.text == "none" || token.text == "None") {
        node->constant = Value(None{});
      } else {
        node->kind = Kind::kName;
        node->name = token.text;
        NoteUse(token.text);
      }
      Advance();
      return node;
    case Token::Kind::kString: {
      std::string text;
      while (current().kind == Token::Kind::kString) {
        text += current().text;
        Advance();
      }
      node->constant = Value(std::string_view(text));
      return node;
    }
    case Token::Kind::kInteger:
      node->constant = Value(token.integer);
      Advance();
      return node;
    case Token::Kind::kFloat:
      node->constant = Value(token.number);
      Advance();
      return node;
    default:
      break;
  }
  if (SkipOperator("(")) {
    QUIRE_ASSIGN_OR_RETURN(node, ParseTuple(true, true));
    QUIRE_RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }
  if (SkipOperator("[")) return ParseList(std::move(node));
  if (SkipOperator("{")) return ParseDict(std::move(node));
  return Expected("an expression");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList(ExpressionPtr node) {
  node->kind = Kind::kList;
  while (!IsOperator("]")) {
    if (!node->operands.empty()) QUIRE_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("]")) break;
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr element, ParseExpression());
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(element)));
  }
  Advance();
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict(ExpressionPtr node) {
  node->kind = Kind::kDict;
  while (!IsOperator("}")) {
    if (!node->operands.empty()) QUIRE_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("}")) break;
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    QUIRE_RETURN_IF_ERROR(ExpectOperator(":"));
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(key)));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(value)));
  }
  Advance();
  return node;
}

bool ExpressionParser::EndsTuple() const {
  return current().kind == Token::Kind::kTagEnd || current().kind == Token::Kind::kOutputEnd || IsOperator(")") ||
         current().kind == Token::Kind::kEnd || (ends_at_recursive_ && IsName("recursive"));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(bool with_condition, bool has_parentheses) {
  ExpressionPtr tuple = New(Kind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple->operands.empty()) {
      if (!SkipOperator(",")) break;
      is_tuple = true;
    }
    if (EndsTuple()) break;
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr element, ParseExpression(with_condition));
    QUIRE_RETURN_IF_ERROR(Adopt(tuple.get(), std::move(element)));
  }
  if (!is_tuple && !tuple->operands.empty()) return std::move(tuple->operands.front());
  if (tuple->operands.empty() && !has_parentheses) return Expected("an expression");
  return tuple;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (SkipOperator(".")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (SkipOperator("[")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (IsOperator("(")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  ExpressionPtr node = New(Kind::kAttribute);
  const int line = object->line;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(object)));
  if (current().kind == Token::Kind::kName) {
    node->name = current().text;
  } else if (current().kind == Token::Kind::kInteger) {
    node->kind = Kind::kItem;
    ExpressionPtr index = New(Kind::kConstant);
    index->constant = Value(current().integer);
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(index)));
  } else {
    return Expected("the name of an attribute");
  }
  node->line = line;
  Advance();
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr object) {
  ExpressionPtr node = New(Kind::kItem);
  node->line = object->line;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(object)));
  ExpressionPtr first;
  if (!IsOperator(":")) {
    QUIRE_ASSIGN_OR_RETURN(first, ParseExpression());
  }
  if (!IsOperator(":")) {
    if (IsOperator(",")) return ErrorAt(current().line, "an index of several values is not supported");
    QUIRE_RETURN_IF_ERROR(ExpectOperator("]"));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(first)));
    return node;
  }
  Advance();
  node->kind = Kind::kSlice;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(first)));
  for (int part = 0; part < 2; ++part) {
    ExpressionPtr bound;
    if (!IsOperator(":") && !IsOperator("]")) {
      QUIRE_ASSIGN_OR_RETURN(bound, ParseExpression());
    }
    if (part == 0) SkipOperator(":");
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(bound)));
  }
  QUIRE_RETURN_IF_ERROR(ExpectOperator("]"));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr node = New(Kind::kCall);
  node->line = callee->line;
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(callee)));
  QUIRE_RETURN_IF_ERROR(ParseArguments(node.get()));
  return node;
}

absl::Status ExpressionParser::AdoptArgument(Expression* node, ExpressionPtr argument, ExpressionPtr* slot) {
  node->depth = std::max(node->depth, argument->depth + 1);
  if (node->depth > kMaxExpressionDepth) return TooDeep(argument->line);
  *slot = std::move(argument);
  return absl::OkStatus();
}

absl::Status ExpressionParser::ParseArguments(Expression* node) {
  QUIRE_RETURN_IF_ERROR(ExpectOperator("("));
  bool is_first = true;
  while (!IsOperator(")")) {
    if (!is_first) QUIRE_RETURN_IF_ERROR(ExpectOperator(","));
    is_first = false;
    if (IsOperator(")")) break;
    const int line = current().line;
    const bool is_star = IsOperator("*");
    const bool is_double_star = IsOperator("**");
    std::string name;
    if (is_star || is_double_star) {
      Advance();
    } else if (current().kind == Token::Kind::kName && ahead().kind == Token::Kind::kOperator && ahead().text == "=") {
      name = current().text;
      Advance();
      Advance();
    }
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr argument, ParseExpression());
    if (is_star || is_double_star) {
      ExpressionPtr& slot = is_star ? node->star : node->double_star;
      if (slot != nullptr || (is_star && node->double_star != nullptr)) {
        return ErrorAt(line, "the arguments with * are in the wrong order");
      }
      QUIRE_RETURN_IF_ERROR(AdoptArgument(node, std::move(argument), &slot));
    } else if (!name.empty()) {
      if (node->double_star != nullptr) return ErrorAt(line, "a named argument comes after **");
      node->named.emplace_back(std::move(name), nullptr);
      QUIRE_RETURN_IF_ERROR(AdoptArgument(node, std::move(argument), &node->named.back().second));
    } else {
      if (!node->named.empty() || node->star != nullptr || node->double_star != nullptr) {
        return ErrorAt(line, "a positional argument comes after a named one");
      }
      QUIRE_RETURN_IF_ERROR(Adopt(node, std::move(argument)));
    }
  }
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr node) {
  while (true) {
    if (IsOperator("|")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    } else if (IsName("is")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (IsOperator("(")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName(std::string_view what) {
  QUIRE_ASSIGN_OR_RETURN(std::string name, ExpectName(what));
  while (SkipOperator(".")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string part, ExpectName(what));
    absl::StrAppend(&name, ".", part);
  }
  return name;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr value) {
  SkipOperator("|");
  ExpressionPtr node = New(Kind::kFilter);
  QUIRE_ASSIGN_OR_RETURN(node->name, ParseDottedName("the name of a filter"));
  if (FindFilter(node->name) == nullptr && condition_depth_ == 0) {
    return ErrorAt(node->line, "there is no filter '", node->name, "'");
  }
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(value)));
  if (IsOperator("(")) QUIRE_RETURN_IF_ERROR(ParseArguments(node.get()));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr value) {
  ExpressionPtr node = New(Kind::kTest);
  Advance();
  const bool is_negated = SkipName("not");
  QUIRE_ASSIGN_OR_RETURN(node->name, ParseDottedName("the name of a test"));
  if (FindPredicate(node->name) == nullptr && condition_depth_ == 0) {
    return ErrorAt(node->line, "there is no test '", node->name, "'");
  }
  QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(value)));
  const Token::Kind kind = current().kind;
  if (IsOperator("(")) {
    QUIRE_RETURN_IF_ERROR(ParseArguments(node.get()));
  } else if ((kind == Token::Kind::kName && !IsName("else") && !IsName("or") && !IsName("and")) ||
             kind == Token::Kind::kString || kind == Token::Kind::kInteger || kind == Token::Kind::kFloat ||
             IsOperator("[") || IsOperator("{")) {
    if (IsName("is")) return ErrorAt(current().line, "tests with `is` cannot be chained");
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    QUIRE_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(argument)));
  }
  if (!is_negated) return node;
  ExpressionPtr negated = New(Kind::kNot);
  negated->line = node->line;
  QUIRE_RETURN_IF_ERROR(Adopt(negated.get(), std::move(node)));
  return negated;
}

}  // namespace quire::jinja
