// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_FUNCTION_H_
#define QUIRE_KV_MANAGER_JINJA_FUNCTION_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/jinja/ast.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// The variables of one level: of a template, an iteration or a call of a macro.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  void Set(std::string_view name, Value value);
  // Looks in the outer scopes too. Returns null when there is none.
  const Value* Find(std::string_view name) const;
};

// Something that can be called.
struct Function {
  enum class Kind { kGlobal, kMethod, kMacro, kCycle, kChanged };
  Kind kind = Kind::kGlobal;
  std::string name;
  Value self;  // The object of a method or of a function of `loop`.
  const Statement* macro = nullptr;
  std::shared_ptr<Scope> scope;  // The scope in which the macro is defined.
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Text, Value>> named;  // A name is the text of a user when it is a key of **.

  // Assigns the arguments to parameters with these names. [names.size()] INVALID_ARGUMENT when there are too many, or
  // when one has an unknown name or is given twice.
  absl::StatusOr<std::vector<std::optional<Value>>> Bind(std::initializer_list<std::string_view> names) const;
};

// Both functions return the value of an argument of a filter, or `otherwise` if it is not given.
absl::StatusOr<int64_t> IntegerOr(const std::optional<Value>& argument, int64_t otherwise);
bool BoolOr(const std::optional<Value>& argument, bool otherwise);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_FUNCTION_H_
