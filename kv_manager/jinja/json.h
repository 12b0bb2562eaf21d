// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_JSON_H_
#define QUIRE_KV_MANAGER_JINJA_JSON_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/value.h"

namespace quire::jinja {

// Says how many values a user can send. A value takes up to 200 bytes of memory, but as few as two of JSON.
inline constexpr int kMaxJsonValues = 100'000;

// Parses JSON. All strings and keys of the value are marked as text of a user when `from_user`. INVALID_ARGUMENT, with
// the byte, when it is not JSON, is nested deeper than 64 levels, has an integer of more than 308 digits, or has more
// than
// `*num_values_left` values; this number shrinks by its values. Without the number, kMaxJsonValues are allowed.
absl::StatusOr<Value> ParseJson(std::string_view json, bool from_user, int* num_values_left);
absl::StatusOr<Value> ParseJson(std::string_view json, bool from_user);

// The arguments of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // One level is indented by it.
  Text item_separator = {", ", {}, false};
  Text key_separator = {": ", {}, false};
};

// Returns the value as json.dumps writes it. INVALID_ARGUMENT when it has something that JSON has not.
absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_JSON_H_
