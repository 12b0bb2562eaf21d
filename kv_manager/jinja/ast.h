// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_AST_H_
#define QUIRE_KV_MANAGER_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/jinja/value.h"

namespace quire::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

// A node of an expression. What `operands` are depends on the kind.
struct Expression {
  enum class Kind {
    kConstant,   // `constant`
    kName,       // `name`
    kList,       // the elements
    kTuple,      // the elements
    kDict,       // key, value, key, value, ...
    kNot,        // 1
    kNegate,     // 1
    kPlus,       // 1
    kBinary,     // 2; operators[0]
    kAnd,        // 2
    kOr,         // 2
    kConcat,     // 2 or more
    kCompare,    // 1 + one for each of `operators`
    kCondition,  // value, test, and the value otherwise or null
    kAttribute,  // object; `name`
    kItem,       // object, key
    kSlice,      // object, begin, end, step; the last three may be null
    kCall,       // callee and arguments
    kFilter,     // value (null in a filter block) and arguments; `name`
    kTest,       // value and arguments; `name`
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // Depth of nested expressions.
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<Operator> operators;
  // The further arguments of a call, filter or test.
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *star
  ExpressionPtr double_star;  // **double_star
};

struct Statement {
  enum class Kind {
    kText,      // `text`
    kOutput,    // expression
    kIf,        // branches
    kFor,       // target in expression; condition; body; otherwise
    kSet,       // target = expression
    kSetBlock,  // target; expression is a chain of filters or null; body
    kMacro,     // name, parameters, body
    kCall,      // expression is the call; parameters and body of the caller
    kFilter,    // expression is the chain of filters; body
    kWith,      // assignments; body
    kScope,     // body, in a scope of its own
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr test;  // Null for else.
    std::vector<StatementPtr> body;
  };
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise;  // The default, or null.
  };

  Kind kind = Kind::kText;
  int line = 0;
  std::string name;
  std::string text;
  ExpressionPtr target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  bool is_recursive = false;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  bool uses_varargs = false;  // The body names `varargs`, so that further positional arguments are allowed.
  bool uses_kwargs = false;
  bool uses_caller = false;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  std::vector<StatementPtr> body;
  std::vector<StatementPtr> otherwise;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_AST_H_
