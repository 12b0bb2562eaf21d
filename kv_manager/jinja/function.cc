// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/function.h"

#include <algorithm>
#include <string>

#include "base/status.h"

namespace quire::jinja {

void Scope::Set(std::string_view name, Value value) {
  for (auto& [existing, old] : variables) {
    if (existing == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(std::string(name), std::move(value));
}

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [existing, value] : scope->variables) {
      if (existing == name) return &value;
    }
  }
  return nullptr;
}

absl::StatusOr<std::vector<std::optional<Value>>> Arguments::Bind(std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size()) {
    return InvalidArgument("takes at most ", names.size(), " arguments, got ", positional.size());
  }
  std::vector<std::optional<Value>> bound(names.size());
  std::copy(positional.begin(), positional.end(), bound.begin());
  for (const auto& [name, value] : named) {
    const auto found = std::find(names.begin(), names.end(), name.bytes);
    if (found == names.end()) return InvalidArgument("has no argument \"", name.bytes, "\"");
    std::optional<Value>& slot = bound[static_cast<size_t>(found - names.begin())];
    if (slot.has_value()) return InvalidArgument("argument \"", name.bytes, "\" is given twice");
    slot = value;
  }
  return bound;
}

absl::StatusOr<int64_t> IntegerOr(const std::optional<Value>& argument, int64_t otherwise) {
  if (!argument.has_value()) return otherwise;
  int64_t value = 0;
  if (argument->GetInteger(&value)) return value;
  return InvalidArgument("needs an integer, not a value of type ", std::string(argument->type_name()));
}

bool BoolOr(const std::optional<Value>& argument, bool otherwise) {
  return argument.has_value() ? argument->IsTrue() : otherwise;
}

}  // namespace quire::jinja
