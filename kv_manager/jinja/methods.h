// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_METHODS_H_
#define QUIRE_KV_MANAGER_JINJA_METHODS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// Returns whether values of this type have a method with this name. Only methods that change nothing are there.
bool HasMethod(const Value& value, std::string_view name);
// REQUIRES: HasMethod(self, name).
absl::StatusOr<Value> CallMethod(const Value& self, std::string_view name, const Arguments& arguments, Budget* budget);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_METHODS_H_
