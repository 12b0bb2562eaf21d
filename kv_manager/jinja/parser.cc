#include "kv_manager/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/status.h"
#include "kv_manager/jinja/filters.h"
#include "kv_manager/jinja/lexer.h"
#include "kv_manager/jinja/predicates.h"

namespace quire::jinja {
namespace {

using Kind = Expression::Kind;
using OrExpression = absl::StatusOr<ExpressionPtr>;
using Body = std::vector<StatementPtr>;

// The deepest nesting of expressions, and that of statements.
constexpr int kMaxExpressionDepth = 100;
constexpr int kMaxStatementDepth = 50;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Body> Run() {
    Body body;
    QUIRE_RETURN_IF_ERROR(ParseBody({}, "", &body));
    return body;
  }

 private:
  // Tokens.

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

  // Expressions.

  ExpressionPtr New(Kind kind) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = current().line;
    return node;
  }
  absl::Status Adopt(Expression* node, ExpressionPtr operand) {
    if (operand != nullptr) {
      node->depth = std::max(node->depth, operand->depth + 1);
      if (node->depth > kMaxExpressionDepth) return TooDeep(operand->line);
    }
    node->operands.push_back(std::move(operand));
    return absl::OkStatus();
  }
  absl::Status TooDeep(int line) const {
    return ErrorAt(line, "an expression is nested deeper than ", kMaxExpressionDepth, " levels");
  }

  // Counts the recursion of the parser itself.
  struct Nested {
    explicit Nested(int* depth) : depth_(depth) { ++*depth_; }
    ~Nested() { --*depth_; }
    int* depth_;
  };

  OrExpression ParseExpression(bool with_condition = true) {
    const Nested nested(&expression_depth_);
    if (expression_depth_ > kMaxExpressionDepth) return TooDeep(current().line);
    return with_condition ? ParseCondition() : ParseOr();
  }

  OrExpression ParseCondition() {
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

  OrExpression Binary(Kind kind, ExpressionPtr left, ExpressionPtr right) {
    ExpressionPtr node = New(kind);
    node->line = left->line;
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(left)));
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(right)));
    return node;
  }

  OrExpression ParseOr() {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
    while (SkipName("or")) {
      QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
      QUIRE_ASSIGN_OR_RETURN(left, Binary(Kind::kOr, std::move(left), std::move(right)));
    }
    return left;
  }

  OrExpression ParseAnd() {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
    while (SkipName("and")) {
      QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
      QUIRE_ASSIGN_OR_RETURN(left, Binary(Kind::kAnd, std::move(left), std::move(right)));
    }
    return left;
  }

  OrExpression ParseNot() {
    if (!IsName("not")) return ParseCompare();
    const Nested nested(&expression_depth_);
    if (expression_depth_ > kMaxExpressionDepth) return TooDeep(current().line);
    ExpressionPtr node = New(Kind::kNot);
    Advance();
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(operand)));
    return node;
  }

  bool SkipComparison(Operator* found) {
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

  OrExpression ParseCompare() {
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

  OrExpression BinaryOperator(Operator op, ExpressionPtr left, ExpressionPtr right) {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr node, Binary(Kind::kBinary, std::move(left), std::move(right)));
    node->operators.push_back(op);
    return node;
  }

  OrExpression ParseSum() {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
    while (IsOperator("+") || IsOperator("-")) {
      const Operator op = IsOperator("+") ? Operator::kAdd : Operator::kSubtract;
      Advance();
      QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
      QUIRE_ASSIGN_OR_RETURN(left, BinaryOperator(op, std::move(left), std::move(right)));
    }
    return left;
  }

  OrExpression ParseConcat() {
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

  OrExpression ParseProduct() {
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

  OrExpression ParsePower() {
    QUIRE_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(true));
    while (SkipOperator("**")) {
      QUIRE_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(true));
      QUIRE_ASSIGN_OR_RETURN(left, BinaryOperator(Operator::kPower, std::move(left), std::move(right)));
    }
    return left;
  }

  OrExpression ParseUnary(bool with_filter) {
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

  OrExpression ParsePrimary() {
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

  OrExpression ParseList(ExpressionPtr node) {
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

  OrExpression ParseDict(ExpressionPtr node) {
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

  bool EndsTuple() const {
    return current().kind == Token::Kind::kTagEnd || current().kind == Token::Kind::kOutputEnd || IsOperator(")") ||
           current().kind == Token::Kind::kEnd || (ends_at_recursive_ && IsName("recursive"));
  }

  // Several expressions with commas are a tuple; one without is itself.
  OrExpression ParseTuple(bool with_condition, bool has_parentheses) {
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

  OrExpression ParsePostfix(ExpressionPtr node) {
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

  OrExpression ParseAttribute(ExpressionPtr object) {
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

  OrExpression ParseSubscript(ExpressionPtr object) {
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

  OrExpression ParseCall(ExpressionPtr callee) {
    ExpressionPtr node = New(Kind::kCall);
    node->line = callee->line;
    QUIRE_RETURN_IF_ERROR(Adopt(node.get(), std::move(callee)));
    QUIRE_RETURN_IF_ERROR(ParseArguments(node.get()));
    return node;
  }

  absl::Status AdoptArgument(Expression* node, ExpressionPtr argument, ExpressionPtr* slot) {
    node->depth = std::max(node->depth, argument->depth + 1);
    if (node->depth > kMaxExpressionDepth) return TooDeep(argument->line);
    *slot = std::move(argument);
    return absl::OkStatus();
  }

  absl::Status ParseArguments(Expression* node) {
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
      } else if (current().kind == Token::Kind::kName && ahead().kind == Token::Kind::kOperator &&
                 ahead().text == "=") {
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

  OrExpression ParseFilters(ExpressionPtr node) {
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

  // A name with dots.
  absl::StatusOr<std::string> ParseDottedName(std::string_view what) {
    QUIRE_ASSIGN_OR_RETURN(std::string name, ExpectName(what));
    while (SkipOperator(".")) {
      QUIRE_ASSIGN_OR_RETURN(const std::string part, ExpectName(what));
      absl::StrAppend(&name, ".", part);
    }
    return name;
  }

  // `value` is null in a filter block. The current token is the bar, or the name in such a block.
  OrExpression ParseFilter(ExpressionPtr value) {
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

  OrExpression ParseTest(ExpressionPtr value) {
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

  // Statements.

  // Parses until a tag that begins with one of `ends`, and moves to the name of the tag. With no ends, until the end of
  // the template. `opening` is the tag that has to be closed.
  absl::Status ParseBody(std::initializer_list<std::string_view> ends, std::string_view opening, Body* body) {
    const Nested nested(&statement_depth_);
    const int opening_line = current().line;
    if (statement_depth_ > kMaxStatementDepth) {
      return ErrorAt(opening_line, "tags are nested deeper than ", kMaxStatementDepth, " levels");
    }
    while (true) {
      const Token& token = current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) return absl::OkStatus();
        return ErrorAt(opening_line, "{% ", std::string(opening), " %} is not closed by {% ",
                       std::string(*(ends.end() - 1)), " %}");
      }
      if (token.kind == Token::Kind::kText) {
        StatementPtr text = NewStatement(Statement::Kind::kText);
        text->text = token.text;
        body->push_back(std::move(text));
        Advance();
      } else if (token.kind == Token::Kind::kOutputBegin) {
        StatementPtr output = NewStatement(Statement::Kind::kOutput);
        Advance();
        QUIRE_ASSIGN_OR_RETURN(output->expression, ParseTuple(true, false));
        if (current().kind != Token::Kind::kOutputEnd) return Expected("'}}'");
        Advance();
        body->push_back(std::move(output));
      } else {
        Advance();
        if (current().kind != Token::Kind::kName) return Expected("the name of a tag");
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return absl::OkStatus();
        QUIRE_RETURN_IF_ERROR(ParseStatement(body));
      }
    }
  }

  StatementPtr NewStatement(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  absl::Status ParseStatement(Body* body) {
    StatementPtr statement = NewStatement(Statement::Kind::kScope);
    const std::string tag = current().text;
    Advance();
    if (tag == "if") {
      QUIRE_RETURN_IF_ERROR(ParseIf(statement.get()));
    } else if (tag == "for") {
      QUIRE_RETURN_IF_ERROR(ParseFor(statement.get()));
    } else if (tag == "set") {
      QUIRE_RETURN_IF_ERROR(ParseSet(statement.get()));
    } else if (tag == "macro") {
      QUIRE_RETURN_IF_ERROR(ParseMacro(statement.get()));
    } else if (tag == "call") {
      QUIRE_RETURN_IF_ERROR(ParseCallBlock(statement.get()));
    } else if (tag == "filter") {
      statement->kind = Statement::Kind::kFilter;
      QUIRE_ASSIGN_OR_RETURN(statement->expression, ParseFilterChain(nullptr));
      QUIRE_RETURN_IF_ERROR(ParseClosedBody(tag, "endfilter", &statement->body));
    } else if (tag == "with") {
      QUIRE_RETURN_IF_ERROR(ParseWith(statement.get()));
    } else if (tag == "generation") {
      // Marks what the model wrote, for training. Here it is only a scope.
      QUIRE_RETURN_IF_ERROR(ParseClosedBody(tag, "endgeneration", &statement->body));
    } else if (tag == "break" || tag == "continue") {
      statement->kind = tag == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      if (loop_depth_ == 0) return ErrorAt(statement->line, "{% ", tag, " %} is outside of a loop");
      QUIRE_RETURN_IF_ERROR(ExpectTagEnd());
    } else if (tag.starts_with("end") || tag == "else" || tag == "elif") {
      return ErrorAt(statement->line, "{% ", tag, " %} has no tag that it ends");
    } else {
      return ErrorAt(statement->line, "the tag {% ", tag, " %} is not supported");
    }
    body->push_back(std::move(statement));
    return absl::OkStatus();
  }

  // Parses the end of the opening tag, the body and the closing tag.
  absl::Status ParseClosedBody(std::string_view opening, std::string_view closing, Body* body) {
    QUIRE_RETURN_IF_ERROR(ExpectTagEnd());
    QUIRE_RETURN_IF_ERROR(ParseBody({closing}, opening, body));
    Advance();
    return ExpectTagEnd();
  }

  absl::Status ParseIf(Statement* statement) {
    statement->kind = Statement::Kind::kIf;
    ++condition_depth_;
    while (true) {
      Statement::Branch branch;
      QUIRE_ASSIGN_OR_RETURN(branch.test, ParseTuple(false, false));
      QUIRE_RETURN_IF_ERROR(ExpectTagEnd());
      QUIRE_RETURN_IF_ERROR(ParseBody({"elif", "else", "endif"}, "if", &branch.body));
      statement->branches.push_back(std::move(branch));
      if (!SkipName("elif")) break;
    }
    if (SkipName("else")) {
      Statement::Branch branch;
      QUIRE_RETURN_IF_ERROR(ExpectTagEnd());
      QUIRE_RETURN_IF_ERROR(ParseBody({"endif"}, "if", &branch.body));
      statement->branches.push_back(std::move(branch));
    }
    --condition_depth_;
    Advance();
    return ExpectTagEnd();
  }

  // A name, or several with commas.
  OrExpression ParseTarget() {
    ExpressionPtr tuple = New(Kind::kTuple);
    const bool has_parentheses = SkipOperator("(");
    bool is_tuple = has_parentheses;
    while (true) {
      ExpressionPtr name = New(Kind::kName);
      QUIRE_ASSIGN_OR_RETURN(name->name, ExpectName("the name of a variable"));
      for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
        if (name->name == constant) return ErrorAt(name->line, "'", name->name, "' cannot be assigned to");
      }
      QUIRE_RETURN_IF_ERROR(Adopt(tuple.get(), std::move(name)));
      if (!SkipOperator(",")) break;
      is_tuple = true;
    }
    if (has_parentheses) QUIRE_RETURN_IF_ERROR(ExpectOperator(")"));
    if (is_tuple) return tuple;
    return std::move(tuple->operands.front());
  }

  absl::Status ParseFor(Statement* statement) {
    statement->kind = Statement::Kind::kFor;
    QUIRE_ASSIGN_OR_RETURN(statement->target, ParseTarget());
    if (!SkipName("in")) return Expected("'in'");
    const bool outer = std::exchange(ends_at_recursive_, true);
    absl::StatusOr<ExpressionPtr> iterated = ParseTuple(false, false);
    ends_at_recursive_ = outer;
    QUIRE_ASSIGN_OR_RETURN(statement->expression, std::move(iterated));
    if (SkipName("if")) {
      QUIRE_ASSIGN_OR_RETURN(statement->condition, ParseExpression());
    }
    statement->is_recursive = SkipName("recursive");
    QUIRE_RETURN_IF_ERROR(ExpectTagEnd());
    ++loop_depth_;
    QUIRE_RETURN_IF_ERROR(ParseBody({"else", "endfor"}, "for", &statement->body));
    --loop_depth_;
    if (SkipName("else")) {
      QUIRE_RETURN_IF_ERROR(ExpectTagEnd());
      QUIRE_RETURN_IF_ERROR(ParseBody({"endfor"}, "for", &statement->otherwise));
    }
    Advance();
    return ExpectTagEnd();
  }

  absl::Status ParseSet(Statement* statement) {
    statement->kind = Statement::Kind::kSet;
    if (ahead().kind == Token::Kind::kOperator && ahead().text == ".") {
      ExpressionPtr object = New(Kind::kName);
      QUIRE_ASSIGN_OR_RETURN(object->name, ExpectName("the name of a namespace"));
      Advance();
      statement->target = New(Kind::kAttribute);
      QUIRE_RETURN_IF_ERROR(Adopt(statement->target.get(), std::move(object)));
      QUIRE_ASSIGN_OR_RETURN(statement->target->name, ExpectName("the name of an attribute"));
    } else {
      QUIRE_ASSIGN_OR_RETURN(statement->target, ParseTarget());
    }
    if (SkipOperator("=")) {
      QUIRE_ASSIGN_OR_RETURN(statement->expression, ParseTuple(true, false));
      return ExpectTagEnd();
    }
    statement->kind = Statement::Kind::kSetBlock;
    if (IsOperator("|")) {
      QUIRE_ASSIGN_OR_RETURN(statement->expression, ParseFilterChain(nullptr));
    }
    return ParseClosedBody("set", "endset", &statement->body);
  }

  OrExpression ParseFilterChain(ExpressionPtr node) {
    QUIRE_ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    while (IsOperator("|")) {
      QUIRE_ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    }
    return node;
  }

  absl::Status ParseParameters(Statement* statement) {
    QUIRE_RETURN_IF_ERROR(ExpectOperator("("));
    while (!IsOperator(")")) {
      if (!statement->parameters.empty()) QUIRE_RETURN_IF_ERROR(ExpectOperator(","));
      if (IsOperator(")")) break;
      Statement::Parameter parameter;
      QUIRE_ASSIGN_OR_RETURN(parameter.name, ExpectName("the name of a parameter"));
      if (SkipOperator("=")) {
        QUIRE_ASSIGN_OR_RETURN(parameter.otherwise, ParseExpression());
      } else if (!statement->parameters.empty() && statement->parameters.back().otherwise != nullptr) {
        return ErrorAt(current().line, "parameter '", parameter.name, "' comes after one with a default");
      }
      statement->parameters.push_back(std::move(parameter));
    }
    Advance();
    return absl::OkStatus();
  }

  // A macro allows further arguments only if its body names the variable in which they would be.
  void NoteUse(std::string_view name) {
    if (macros_.empty()) return;
    if (name == "varargs") macros_.back()->uses_varargs = true;
    if (name == "kwargs") macros_.back()->uses_kwargs = true;
    if (name == "caller") macros_.back()->uses_caller = true;
  }

  absl::Status ParseMacroBody(Statement* statement, std::string_view tag, std::string_view closing) {
    macros_.push_back(statement);
    const int outer_loops = std::exchange(loop_depth_, 0);
    const absl::Status status = ParseClosedBody(tag, closing, &statement->body);
    loop_depth_ = outer_loops;
    macros_.pop_back();
    return status;
  }

  absl::Status ParseMacro(Statement* statement) {
    statement->kind = Statement::Kind::kMacro;
    QUIRE_ASSIGN_OR_RETURN(statement->name, ExpectName("the name of a macro"));
    QUIRE_RETURN_IF_ERROR(ParseParameters(statement));
    return ParseMacroBody(statement, "macro", "endmacro");
  }

  absl::Status ParseCallBlock(Statement* statement) {
    statement->kind = Statement::Kind::kCall;
    statement->name = "caller";
    if (IsOperator("(")) QUIRE_RETURN_IF_ERROR(ParseParameters(statement));
    QUIRE_ASSIGN_OR_RETURN(statement->expression, ParseExpression());
    if (statement->expression->kind != Kind::kCall) return ErrorAt(statement->line, "{% call %} needs a call");
    return ParseMacroBody(statement, "call", "endcall");
  }

  absl::Status ParseWith(Statement* statement) {
    statement->kind = Statement::Kind::kWith;
    while (current().kind != Token::Kind::kTagEnd) {
      if (!statement->assignments.empty()) QUIRE_RETURN_IF_ERROR(ExpectOperator(","));
      ExpressionPtr target = New(Kind::kName);
      QUIRE_ASSIGN_OR_RETURN(target->name, ExpectName("the name of a variable"));
      QUIRE_RETURN_IF_ERROR(ExpectOperator("="));
      QUIRE_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      statement->assignments.emplace_back(std::move(target), std::move(value));
    }
    return ParseClosedBody("with", "endwith", &statement->body);
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int expression_depth_ = 0;
  int statement_depth_ = 0;
  int condition_depth_ = 0;
  int loop_depth_ = 0;
  bool ends_at_recursive_ = false;
  std::vector<Statement*> macros_;
};

}  // namespace

absl::StatusOr<std::vector<StatementPtr>> Parse(std::string_view source) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace quire::jinja
