// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/interpreter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/jinja/access.h"
#include "kv_manager/jinja/filters.h"
#include "kv_manager/jinja/methods.h"
#include "kv_manager/jinja/operators.h"
#include "kv_manager/jinja/predicates.h"

namespace quire::jinja {
namespace {

using Kind = Expression::Kind;

// Returns what an error message calls an expression.
std::string Construct(const Expression& expression) {
  switch (expression.kind) {
    case Kind::kFilter:
      return absl::StrCat("filter '", expression.name, "'");
    case Kind::kTest:
      return absl::StrCat("test '", expression.name, "'");
    case Kind::kAttribute:
      return absl::StrCat("'.", expression.name, "'");
    case Kind::kCall: {
      const Expression& callee = *expression.operands.front();
      return callee.name.empty() ? "a call" : absl::StrCat(callee.name, "()");
    }
    case Kind::kItem:
      return "an index";
    case Kind::kSlice:
      return "a slice";
    case Kind::kCompare:
      return "a comparison";
    default:
      return "an expression";
  }
}

std::string Construct(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::kFor:
      return "{% for %}";
    case Statement::Kind::kIf:
      return "{% if %}";
    case Statement::Kind::kSet:
    case Statement::Kind::kSetBlock:
      return "{% set %}";
    case Statement::Kind::kOutput:
      return "{{ }}";
    case Statement::Kind::kCall:
      return "{% call %}";
    default:
      return "a tag";
  }
}

}  // namespace

Interpreter::Interpreter(const RenderLimits& limits, absl::Time now, absl::TimeZone time_zone)
    : budget_(limits), globals_(now, time_zone) {}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : captured_scopes_) scope->variables.clear();
}

absl::StatusOr<Text> Interpreter::Run(const std::vector<StatementPtr>& body,
                                      std::vector<std::pair<std::string, Value>> variables) {
  const auto scope = std::make_shared<Scope>(nullptr);
  scope->variables = std::move(variables);
  TextBuilder out;
  QUIRE_RETURN_IF_ERROR(Execute(body, std::make_shared<Scope>(scope), &out).status());
  return out.Take();
}

absl::Status Interpreter::Locate(absl::Status status, int line, std::string_view construct) {
  if (is_located_) return status;
  is_located_ = true;
  return absl::Status(status.code(),
                      absl::StrCat("line ", line, ": ", std::string(construct), ": ", std::string(status.message())));
}

// Statements.

Interpreter::OrFlow Interpreter::Execute(const std::vector<StatementPtr>& body, const ScopePtr& scope,
                                         TextBuilder* out) {
  for (const StatementPtr& statement : body) {
    ++depth_;
    absl::Status status = budget_.Step();
    if (status.ok() && depth_ > budget_.limits().max_depth) {
      status = InvalidArgument("rendering is nested deeper than ", budget_.limits().max_depth, " levels");
    }
    OrFlow flow = status.ok() ? ExecuteOne(*statement, scope, out) : OrFlow(status);
    --depth_;
    if (!flow.ok()) return Locate(flow.status(), statement->line, Construct(*statement));
    if (*flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::OrFlow Interpreter::ExecuteOne(const Statement& statement, const ScopePtr& scope, TextBuilder* out) {
  switch (statement.kind) {
    case Statement::Kind::kText:
      QUIRE_RETURN_IF_ERROR(budget_.Build(statement.text.size()));
      if (out->size() + statement.text.size() > budget_.limits().max_output_bytes) {
        return budget_.Build(out->size() + statement.text.size());
      }
      out->Append(statement.text, false);
      return Flow::kNormal;
    case Statement::Kind::kOutput: {
      QUIRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression, scope));
      QUIRE_RETURN_IF_ERROR(AppendString(value, &budget_, out));
      return Flow::kNormal;
    }
    case Statement::Kind::kIf:
      return ExecuteIf(statement, scope, out);
    case Statement::Kind::kFor: {
      QUIRE_ASSIGN_OR_RETURN(const Value iterated, Evaluate(*statement.expression, scope));
      QUIRE_RETURN_IF_ERROR(ExecuteFor(statement, scope, iterated, 0, out));
      return Flow::kNormal;
    }
    case Statement::Kind::kSet:
      QUIRE_RETURN_IF_ERROR(ExecuteSet(statement, scope));
      return Flow::kNormal;
    case Statement::Kind::kSetBlock:
      QUIRE_RETURN_IF_ERROR(ExecuteSetBlock(statement, scope));
      return Flow::kNormal;
    case Statement::Kind::kMacro:
      QUIRE_RETURN_IF_ERROR(budget_.BuildList(kKeptElements));
      scope->Set(statement.name, MakeMacro(statement, scope));
      return Flow::kNormal;
    case Statement::Kind::kCall:
      QUIRE_RETURN_IF_ERROR(ExecuteCall(statement, scope, out));
      return Flow::kNormal;
    case Statement::Kind::kFilter: {
      TextBuilder body;
      QUIRE_ASSIGN_OR_RETURN(const Flow flow, Execute(statement.body, std::make_shared<Scope>(scope), &body));
      QUIRE_ASSIGN_OR_RETURN(const Value filtered, ApplyChain(*statement.expression, scope, Value(body.Take())));
      QUIRE_RETURN_IF_ERROR(AppendString(filtered, &budget_, out));
      return flow;
    }
    case Statement::Kind::kWith: {
      const auto inner = std::make_shared<Scope>(scope);
      for (const auto& [target, expression] : statement.assignments) {
        QUIRE_ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
        inner->Set(target->name, std::move(value));
      }
      return Execute(statement.body, inner, out);
    }
    case Statement::Kind::kScope:
      return Execute(statement.body, std::make_shared<Scope>(scope), out);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::OrFlow Interpreter::ExecuteIf(const Statement& statement, const ScopePtr& scope, TextBuilder* out) {
  for (const Statement::Branch& branch : statement.branches) {
    bool is_taken = branch.test == nullptr;
    if (!is_taken) {
      QUIRE_ASSIGN_OR_RETURN(const Value test, Evaluate(*branch.test, scope));
      is_taken = test.IsTrue();
    }
    if (is_taken) return Execute(branch.body, scope, out);
  }
  return Flow::kNormal;
}

absl::Status Interpreter::ExecuteFor(const Statement& statement, const ScopePtr& scope, const Value& iterated,
                                     int depth0, TextBuilder* out) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(iterated, &budget_));
  if (statement.condition != nullptr) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const auto inner = std::make_shared<Scope>(scope);
      QUIRE_RETURN_IF_ERROR(Assign(*statement.target, item, inner));
      QUIRE_ASSIGN_OR_RETURN(const Value keeps, Evaluate(*statement.condition, inner));
      if (keeps.IsTrue()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return Execute(statement.otherwise, std::make_shared<Scope>(scope), out).status();
  const auto loop = std::make_shared<Loop>();
  loop->items = std::move(items);
  loop->depth0 = depth0;
  if (statement.is_recursive) {
    QUIRE_RETURN_IF_ERROR(budget_.BuildList(kKeptElements));
    loop->recursive_body = &statement;
    loop->scope = scope;
    captured_scopes_.push_back(scope);
  }
  for (loop->index0 = 0; loop->index0 < loop->items.size(); ++loop->index0) {
    QUIRE_RETURN_IF_ERROR(budget_.Step());
    const auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", Value(loop));
    QUIRE_RETURN_IF_ERROR(Assign(*statement.target, loop->items[loop->index0], inner));
    QUIRE_ASSIGN_OR_RETURN(const Flow flow, Execute(statement.body, inner, out));
    if (flow == Flow::kBreak) break;
  }
  return absl::OkStatus();
}

absl::Status Interpreter::ExecuteSet(const Statement& statement, const ScopePtr& scope) {
  QUIRE_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expression, scope));
  return Assign(*statement.target, std::move(value), scope);
}

absl::Status Interpreter::ExecuteSetBlock(const Statement& statement, const ScopePtr& scope) {
  TextBuilder body;
  QUIRE_RETURN_IF_ERROR(Execute(statement.body, std::make_shared<Scope>(scope), &body).status());
  Value value(body.Take());
  if (statement.expression != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(value, ApplyChain(*statement.expression, scope, value));
  }
  return Assign(*statement.target, std::move(value), scope);
}

absl::Status Interpreter::ExecuteCall(const Statement& statement, const ScopePtr& scope, TextBuilder* out) {
  QUIRE_RETURN_IF_ERROR(budget_.BuildList(kKeptElements));
  const Value caller = MakeMacro(statement, scope);
  QUIRE_ASSIGN_OR_RETURN(const Value value, EvaluateCall(*statement.expression, scope, &caller));
  return AppendString(value, &budget_, out);
}

absl::Status Interpreter::Assign(const Expression& target, Value value, const ScopePtr& scope) {
  if (target.kind == Kind::kName) {
    scope->Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  if (target.kind == Kind::kAttribute) {
    const std::string& name = target.operands.front()->name;
    const Value* object = scope->Find(name);
    Namespace* names = object == nullptr ? nullptr : object->as_namespace();
    if (names == nullptr) return InvalidArgument("'", name, "' is not a namespace");
    if (target.name.starts_with("_"))
      return InvalidArgument("a namespace cannot have the attribute '", target.name, "'");
    return names->values.Set(Value(std::string_view(target.name)), std::move(value));
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, &budget_));
  if (items.size() != target.operands.size()) {
    return InvalidArgument("cannot assign ", items.size(), " values to ", target.operands.size(), " variables");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(Assign(*target.operands[i], std::move(items[i]), scope));
  }
  return absl::OkStatus();
}

// Expressions.

Interpreter::OrValue Interpreter::Evaluate(const Expression& expression, const ScopePtr& scope) {
  ++depth_;
  absl::Status status = budget_.Step();
  if (status.ok() && depth_ > budget_.limits().max_depth) {
    status = InvalidArgument("rendering is nested deeper than ", budget_.limits().max_depth, " levels");
  }
  OrValue value = status.ok() ? EvaluateUnlocated(expression, scope) : OrValue(status);
  --depth_;
  if (value.ok() && value->depth() > kMaxValueDepth) {
    value = InvalidArgument("a list or dictionary is nested deeper than ", kMaxValueDepth, " levels");
  }
  if (!value.ok()) return Locate(value.status(), expression.line, Construct(expression));
  return value;
}

Interpreter::OrValue Interpreter::EvaluateUnlocated(const Expression& expression, const ScopePtr& scope) {
  const auto operand = [&](size_t i) { return Evaluate(*expression.operands[i], scope); };
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kName:
      return EvaluateName(expression, scope);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return EvaluateElements(expression, scope);
    case Kind::kNot: {
      QUIRE_ASSIGN_OR_RETURN(const Value value, operand(0));
      return Value(!value.IsTrue());
    }
    case Kind::kNegate: {
      QUIRE_ASSIGN_OR_RETURN(const Value value, operand(0));
      return Negate(value);
    }
    case Kind::kPlus: {
      QUIRE_ASSIGN_OR_RETURN(const Value value, operand(0));
      if (value.as_float() != nullptr) return value;
      int64_t integer = 0;
      if (value.GetInteger(&integer)) return Value(integer);
      return Negate(value).status();
    }
    case Kind::kBinary: {
      QUIRE_ASSIGN_OR_RETURN(const Value a, operand(0));
      QUIRE_ASSIGN_OR_RETURN(const Value b, operand(1));
      return Calculate(expression.operators.front(), a, b, &budget_);
    }
    case Kind::kAnd:
    case Kind::kOr: {
      QUIRE_ASSIGN_OR_RETURN(Value a, operand(0));
      if (a.IsTrue() == (expression.kind == Kind::kOr)) return a;
      return operand(1);
    }
    case Kind::kConcat:
      return EvaluateConcat(expression, scope);
    case Kind::kCompare:
      return EvaluateCompare(expression, scope);
    case Kind::kCondition: {
      QUIRE_ASSIGN_OR_RETURN(const Value test, operand(1));
      if (test.IsTrue()) return operand(0);
      if (expression.operands[2] != nullptr) return operand(2);
      return Value::MakeUndefined("the inline if has no else, and its condition is false");
    }
    case Kind::kAttribute: {
      QUIRE_ASSIGN_OR_RETURN(const Value object, operand(0));
      return GetAttribute(object, expression.name);
    }
    case Kind::kItem: {
      QUIRE_ASSIGN_OR_RETURN(const Value object, operand(0));
      QUIRE_ASSIGN_OR_RETURN(const Value key, operand(1));
      return GetItem(object, key);
    }
    case Kind::kSlice: {
      QUIRE_ASSIGN_OR_RETURN(const Value object, operand(0));
      Value bounds[3] = {None{}, None{}, None{}};
      for (size_t i = 0; i < 3; ++i) {
        if (expression.operands[i + 1] == nullptr) continue;
        QUIRE_ASSIGN_OR_RETURN(bounds[i], operand(i + 1));
      }
      return GetSlice(object, bounds[0], bounds[1], bounds[2], &budget_);
    }
    case Kind::kCall:
      return EvaluateCall(expression, scope, nullptr);
    case Kind::kFilter: {
      QUIRE_ASSIGN_OR_RETURN(const Value value, operand(0));
      return EvaluateFilter(expression, scope, &value);
    }
    case Kind::kTest: {
      QUIRE_ASSIGN_OR_RETURN(const Value value, operand(0));
      const Predicate predicate = FindPredicate(expression.name);
      if (predicate == nullptr) return InvalidArgument("there is no such test");
      QUIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression, 1, scope));
      QUIRE_ASSIGN_OR_RETURN(const bool is_true, predicate(value, arguments, &budget_));
      return Value(is_true);
    }
  }
  return InvalidArgument("unknown expression");
}

Interpreter::OrValue Interpreter::EvaluateName(const Expression& expression, const ScopePtr& scope) {
  if (const Value* value = scope->Find(expression.name)) return *value;
  if (Globals::Has(expression.name)) {
    auto function = std::make_shared<Function>();
    function->name = expression.name;
    return Value(std::shared_ptr<const Function>(std::move(function)));
  }
  return Value::MakeUndefined(absl::StrCat("'", expression.name, "' is undefined"));
}

Interpreter::OrValue Interpreter::EvaluateElements(const Expression& expression, const ScopePtr& scope) {
  std::vector<Value> values;
  QUIRE_RETURN_IF_ERROR(budget_.BuildList(expression.operands.size()));
  for (const ExpressionPtr& operand : expression.operands) {
    QUIRE_ASSIGN_OR_RETURN(Value value, Evaluate(*operand, scope));
    values.push_back(std::move(value));
  }
  if (expression.kind == Kind::kList) return Value::MakeList(std::move(values));
  if (expression.kind == Kind::kTuple) return Value::MakeTuple(std::move(values));
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    QUIRE_RETURN_IF_ERROR(dict->Set(values[i], std::move(values[i + 1])));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Interpreter::OrValue Interpreter::EvaluateConcat(const Expression& expression, const ScopePtr& scope) {
  TextBuilder out;
  for (const ExpressionPtr& operand : expression.operands) {
    QUIRE_ASSIGN_OR_RETURN(const Value value, Evaluate(*operand, scope));
    QUIRE_RETURN_IF_ERROR(AppendString(value, &budget_, &out));
  }
  return Value(out.Take());
}

Interpreter::OrValue Interpreter::EvaluateCompare(const Expression& expression, const ScopePtr& scope) {
  QUIRE_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands.front(), scope));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1], scope));
    QUIRE_ASSIGN_OR_RETURN(const bool is_true, Compare(expression.operators[i], left, right, &budget_));
    if (!is_true) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Interpreter::OrValue Interpreter::EvaluateFilter(const Expression& expression, const ScopePtr& scope,
                                                 const Value* value) {
  const Filter filter = FindFilter(expression.name);
  if (filter == nullptr) return InvalidArgument("there is no such filter");
  QUIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression, 1, scope));
  if (const Text* text = value->as_text()) {
    QUIRE_RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(text->bytes.size() / 64)));
  }
  return filter(*value, arguments, &budget_);
}

Interpreter::OrValue Interpreter::ApplyChain(const Expression& expression, const ScopePtr& scope, const Value& value) {
  Value inner = value;
  if (expression.operands.front() != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(inner, ApplyChain(*expression.operands.front(), scope, value));
  }
  OrValue filtered = EvaluateFilter(expression, scope, &inner);
  if (!filtered.ok()) return Locate(filtered.status(), expression.line, Construct(expression));
  return filtered;
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const Expression& expression, size_t first,
                                                         const ScopePtr& scope) {
  Arguments arguments;
  for (size_t i = first; i < expression.operands.size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[i], scope));
    arguments.positional.push_back(std::move(value));
  }
  if (expression.star != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const Value star, Evaluate(*expression.star, scope));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(star, &budget_));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, operand] : expression.named) {
    QUIRE_ASSIGN_OR_RETURN(Value value, Evaluate(*operand, scope));
    arguments.named.emplace_back(Text{.bytes = name, .user = {}}, std::move(value));
  }
  if (expression.double_star != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const Value star, Evaluate(*expression.double_star, scope));
    if (star.as_dict() == nullptr) return InvalidArgument("** needs a dictionary");
    QUIRE_RETURN_IF_ERROR(budget_.BuildList(star.as_dict()->entries.size()));
    for (const auto& [key, value] : star.as_dict()->entries) {
      if (key.as_text() == nullptr) return InvalidArgument("** needs a dictionary with strings as keys");
      arguments.named.emplace_back(*key.as_text(), value);
    }
  }
  return arguments;
}

// Calls.

Interpreter::OrValue Interpreter::EvaluateCall(const Expression& expression, const ScopePtr& scope,
                                               const Value* caller) {
  QUIRE_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.operands.front(), scope));
  QUIRE_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression, 1, scope));
  OrValue value = Call(callee, arguments, caller);
  if (!value.ok()) return Locate(value.status(), expression.line, Construct(expression));
  return value;
}

Interpreter::OrValue Interpreter::Call(const Value& callee, const Arguments& arguments, const Value* caller) {
  if (callee.is_undefined()) return InvalidArgument(callee.undefined_message());
  if (callee.as_loop() != nullptr) return CallLoop(callee, arguments);
  const Function* function = callee.as_function();
  if (function == nullptr) {
    return InvalidArgument("a value of type ", std::string(callee.type_name()), " cannot be called");
  }
  switch (function->kind) {
    case Function::Kind::kGlobal:
      return globals_.Call(function->name, arguments, &budget_);
    case Function::Kind::kMethod:
      return CallMethod(function->self, function->name, arguments, &budget_);
    case Function::Kind::kMacro:
      return CallMacro(*function, arguments, caller);
    case Function::Kind::kCycle: {
      if (arguments.positional.empty()) return InvalidArgument("needs at least one argument");
      return arguments.positional[function->self.as_loop()->index0 % arguments.positional.size()];
    }
    case Function::Kind::kChanged:
      break;
  }
  Loop* loop = function->self.as_loop();
  bool has_changed = !loop->has_changed_before || loop->last_changed.size() != arguments.positional.size();
  for (size_t i = 0; !has_changed && i < arguments.positional.size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(loop->last_changed[i], arguments.positional[i], &budget_));
    has_changed = !is_equal;
  }
  loop->has_changed_before = true;
  // Values that could hold the loop itself would keep it alive.
  for (const Value& value : arguments.positional) {
    if (value.depth() > 0 || value.as_loop() != nullptr || value.as_function() != nullptr) {
      return InvalidArgument("loop.changed() compares strings and numbers only");
    }
  }
  loop->last_changed = arguments.positional;
  return Value(has_changed);
}

Value Interpreter::MakeMacro(const Statement& statement, const ScopePtr& scope) {
  auto function = std::make_shared<Function>();
  function->kind = Function::Kind::kMacro;
  function->name = statement.name;
  function->macro = &statement;
  function->scope = scope;
  if (captured_scopes_.empty() || captured_scopes_.back() != scope) captured_scopes_.push_back(scope);
  return Value(std::shared_ptr<const Function>(std::move(function)));
}

Interpreter::OrValue Interpreter::CallMacro(const Function& macro, const Arguments& arguments, const Value* caller) {
  const Statement& statement = *macro.macro;
  const auto scope = std::make_shared<Scope>(macro.scope);
  const size_t num_parameters = statement.parameters.size();
  if (arguments.positional.size() > num_parameters && !statement.uses_varargs) {
    return InvalidArgument("takes at most ", num_parameters, " arguments, got ", arguments.positional.size());
  }
  std::vector<bool> is_set(num_parameters);
  for (size_t i = 0; i < std::min(num_parameters, arguments.positional.size()); ++i) {
    scope->Set(statement.parameters[i].name, arguments.positional[i]);
    is_set[i] = true;
  }
  auto further = std::make_shared<Dict>();
  const Value* given_caller = caller;
  for (const auto& [given_name, value] : arguments.named) {
    const std::string& name = given_name.bytes;
    size_t i = 0;
    while (i < num_parameters && statement.parameters[i].name != name) ++i;
    if (i < num_parameters) {
      if (is_set[i]) return InvalidArgument("argument \"", name, "\" is given twice");
      scope->Set(name, value);
      is_set[i] = true;
    } else if (name == "caller" && given_caller == nullptr) {
      given_caller = &value;
    } else if (statement.uses_kwargs) {
      QUIRE_RETURN_IF_ERROR(further->Set(Value(given_name), value));
    } else {
      return InvalidArgument("has no argument \"", name, "\"");
    }
  }
  if (given_caller != nullptr && !statement.uses_caller) return InvalidArgument("the macro does not call caller()");
  for (size_t i = 0; i < num_parameters; ++i) {
    const Statement::Parameter& parameter = statement.parameters[i];
    if (is_set[i]) continue;
    Value value = Value::MakeUndefined(absl::StrCat("parameter '", parameter.name, "' was not provided"));
    if (parameter.otherwise != nullptr) {
      QUIRE_ASSIGN_OR_RETURN(value, Evaluate(*parameter.otherwise, scope));
    }
    scope->Set(parameter.name, std::move(value));
  }
  if (statement.uses_varargs) {
    const auto first = std::min(num_parameters, arguments.positional.size());
    scope->Set("varargs", Value::MakeTuple({arguments.positional.begin() + static_cast<ptrdiff_t>(first),
                                            arguments.positional.end()}));
  }
  if (statement.uses_kwargs) scope->Set("kwargs", Value(std::shared_ptr<const Dict>(std::move(further))));
  if (statement.uses_caller) {
    scope->Set("caller", given_caller != nullptr ? *given_caller : Value::MakeUndefined("there is no caller"));
  }
  TextBuilder out;
  QUIRE_RETURN_IF_ERROR(Execute(statement.body, scope, &out).status());
  return Value(out.Take());
}

Interpreter::OrValue Interpreter::CallLoop(const Value& callee, const Arguments& arguments) {
  const Loop& loop = *callee.as_loop();
  if (loop.recursive_body == nullptr) return InvalidArgument("the loop is not recursive");
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::optional<Value>> bound, arguments.Bind({"iterable"}));
  if (!bound[0].has_value()) return InvalidArgument("needs an argument");
  TextBuilder out;
  const auto* statement = static_cast<const Statement*>(loop.recursive_body);
  QUIRE_RETURN_IF_ERROR(ExecuteFor(*statement, loop.scope, *bound[0], loop.depth0 + 1, &out));
  return Value(out.Take());
}

}  // namespace quire::jinja
