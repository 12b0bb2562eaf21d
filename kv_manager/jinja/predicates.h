// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_PREDICATES_H_
#define QUIRE_KV_MANAGER_JINJA_PREDICATES_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// The language calls this a test, such as `defined`: value is predicate(arguments).
using Predicate = absl::StatusOr<bool> (*)(const Value& value, const Arguments& arguments, Budget* budget);

// Returns null when there is no test with this name.
Predicate FindPredicate(std::string_view name);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_PREDICATES_H_
