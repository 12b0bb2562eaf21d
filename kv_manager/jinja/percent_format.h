// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_PERCENT_FORMAT_H_
#define QUIRE_KV_MANAGER_JINJA_PERCENT_FORMAT_H_

#include "absl/status/statusor.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// "..." % values, with the conversions s, r, d, i, f, e, g, x, X, o and c.
absl::StatusOr<Value> FormatPercent(const Text& format, const Value& values, Budget* budget);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_PERCENT_FORMAT_H_
