// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_INTERPRETER_H_
#define QUIRE_KV_MANAGER_JINJA_INTERPRETER_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv_manager/jinja/ast.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/globals.h"

namespace quire::jinja {

// One rendering of a template. Used once.
class Interpreter {
 public:
  // `now` in `time_zone` is what strftime_now() prints.
  Interpreter(const RenderLimits& limits, absl::Time now, absl::TimeZone time_zone);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // INVALID_ARGUMENT, beginning with "line N: ", when the template raises an error or a limit is reached.
  absl::StatusOr<Text> Run(const std::vector<StatementPtr>& body, std::vector<std::pair<std::string, Value>> variables);

 private:
  using OrValue = absl::StatusOr<Value>;
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow { kNormal, kBreak, kContinue };
  using OrFlow = absl::StatusOr<Flow>;

  // Puts the line and the construct in front of the message, unless that was done further inside.
  absl::Status Locate(absl::Status status, int line, std::string_view construct);

  OrFlow Execute(const std::vector<StatementPtr>& body, const ScopePtr& scope, TextBuilder* out);
  OrFlow ExecuteOne(const Statement& statement, const ScopePtr& scope, TextBuilder* out);
  OrFlow ExecuteIf(const Statement& statement, const ScopePtr& scope, TextBuilder* out);
  absl::Status ExecuteFor(const Statement& statement, const ScopePtr& scope, const Value& iterated, int depth0,
                          TextBuilder* out);
  absl::Status ExecuteSet(const Statement& statement, const ScopePtr& scope);
  absl::Status ExecuteSetBlock(const Statement& statement, const ScopePtr& scope);
  absl::Status ExecuteCall(const Statement& statement, const ScopePtr& scope, TextBuilder* out);
  absl::Status Assign(const Expression& target, Value value, const ScopePtr& scope);

  OrValue Evaluate(const Expression& expression, const ScopePtr& scope);
  OrValue EvaluateUnlocated(const Expression& expression, const ScopePtr& scope);
  OrValue EvaluateName(const Expression& expression, const ScopePtr& scope);
  OrValue EvaluateElements(const Expression& expression, const ScopePtr& scope);
  OrValue EvaluateConcat(const Expression& expression, const ScopePtr& scope);
  OrValue EvaluateCompare(const Expression& expression, const ScopePtr& scope);
  OrValue EvaluateFilter(const Expression& expression, const ScopePtr& scope, const Value* value);
  OrValue EvaluateCall(const Expression& expression, const ScopePtr& scope, const Value* caller);
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& expression, size_t first, const ScopePtr& scope);
  // Applies a chain of filters without a value, as in a filter block, to `value`.
  OrValue ApplyChain(const Expression& expression, const ScopePtr& scope, const Value& value);

  OrValue Call(const Value& callee, const Arguments& arguments, const Value* caller);
  OrValue CallMacro(const Function& macro, const Arguments& arguments, const Value* caller);
  OrValue CallLoop(const Value& callee, const Arguments& arguments);
  Value MakeMacro(const Statement& statement, const ScopePtr& scope);

  Budget budget_;
  Globals globals_;
  int depth_ = 0;
  bool is_located_ = false;
  // A scope may refer to itself in a circle. It is emptied at the end.
  std::vector<ScopePtr> captured_scopes_;
};

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_INTERPRETER_H_
