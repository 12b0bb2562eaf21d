// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_OPERATORS_H_
#define QUIRE_KV_MANAGER_JINJA_OPERATORS_H_

#include "absl/status/statusor.h"
#include "kv_manager/jinja/ast.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// a op b, as Python computes it. REQUIRES: `op` is one of +, -, *, /, //, % and **.
absl::StatusOr<Value> Calculate(Operator op, const Value& a, const Value& b, Budget* budget);
// REQUIRES: `op` is a comparison.
absl::StatusOr<bool> Compare(Operator op, const Value& a, const Value& b, Budget* budget);
absl::StatusOr<Value> Negate(const Value& value);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_OPERATORS_H_
