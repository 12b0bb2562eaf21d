// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "kv_manager/jinja/expression_parser.h"
#include "kv_manager/jinja/lexer.h"

namespace quire::jinja {
namespace {

using Body = std::vector<StatementPtr>;

// The deepest nesting of statements.
constexpr int kMaxStatementDepth = 50;

// Parses the text and the tags of a template.
class StatementParser final : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  absl::StatusOr<Body> Run() {
    Body body;
    QUIRE_RETURN_IF_ERROR(ParseBody({}, "", &body));
    return body;
  }

 private:
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
  void NoteUse(std::string_view name) override {
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

  int statement_depth_ = 0;
  int loop_depth_ = 0;
  std::vector<Statement*> macros_;
};

}  // namespace

absl::StatusOr<std::vector<StatementPtr>> Parse(std::string_view source) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace quire::jinja
