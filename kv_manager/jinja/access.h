// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_ACCESS_H_
#define QUIRE_KV_MANAGER_JINJA_ACCESS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// `value.name`: a method if there is one, or else the member of a dictionary. What is missing is undefined.
// INVALID_ARGUMENT when `value` is undefined itself.
absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name);
// `value[key]`: the element, or else the attribute.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);
// `value[begin:end:step]`. A bound that is none is left out. Undefined when
// `value` has no elements. INVALID_ARGUMENT when a bound is undefined or the step is zero.
absl::StatusOr<Value> GetSlice(const Value& value, const Value& begin, const Value& end, const Value& step,
                               Budget* budget);
// The path of an attribute as filters take it: "a.b" or a number.
absl::StatusOr<Value> GetPath(const Value& value, const Value& path);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_ACCESS_H_
