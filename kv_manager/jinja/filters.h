// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_FILTERS_H_
#define QUIRE_KV_MANAGER_JINJA_FILTERS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// A filter such as `trim`: value | filter(arguments).
using Filter = absl::StatusOr<Value> (*)(const Value& value, const Arguments& arguments, Budget* budget);

// Returns null when there is no filter with this name.
Filter FindFilter(std::string_view name);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_FILTERS_H_
