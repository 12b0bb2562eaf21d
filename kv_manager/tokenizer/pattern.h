// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_PATTERN_H_
#define QUIRE_KV_MANAGER_TOKENIZER_PATTERN_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/json_value.h"
#include "kv_manager/tokenizer/regex.h"

namespace quire {

// The pattern that Split and Replace look for: {"String": "..."} or {"Regex": "..."}. Thread-safe.
class Pattern {
 public:
  // REQUIRES: `literal` is not empty.
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}
  static absl::StatusOr<Pattern> Parse(const JsonValue& json);

  // Does the same as Regex::FindAll.
  absl::Status FindAll(std::string_view text, std::vector<TextSpan>* spans) const;

  // The literal string. The result is empty for a regular expression.
  const std::string& literal() const { return literal_; }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_PATTERN_H_
