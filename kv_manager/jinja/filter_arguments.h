// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_FILTER_ARGUMENTS_H_
#define QUIRE_KV_MANAGER_JINJA_FILTER_ARGUMENTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// Both functions return the value of an argument of a filter, or `otherwise` if it is not given.
absl::StatusOr<int64_t> IntegerOr(const std::optional<Value>& argument, int64_t otherwise);
bool BoolOr(const std::optional<Value>& argument, bool otherwise);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_FILTER_ARGUMENTS_H_
