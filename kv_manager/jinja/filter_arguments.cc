// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/filter_arguments.h"

#include <string>

#include "base/status.h"

namespace quire::jinja {

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
