// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/pattern.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {

absl::StatusOr<Pattern> Pattern::Parse(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue literal, json.Find("String"));
  if (!literal.is_null()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view text, literal.AsString());
    if (text.empty()) return literal.Error("must not be empty");
    return Pattern(std::string(text));
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonValue expression, json.Find("Regex"));
  if (expression.is_null()) return json.Error("needs \"String\" or \"Regex\"");
  QUIRE_ASSIGN_OR_RETURN(const std::string_view text, expression.AsString());
  absl::StatusOr<Regex> regex = Regex::Compile(text);
  if (!regex.ok()) return expression.Error(std::string(regex.status().message()));
  return Pattern(*std::move(regex));
}

absl::Status Pattern::FindAll(std::string_view text, std::vector<TextSpan>* spans) const {
  if (regex_.has_value()) return regex_->FindAll(text, spans);
  spans->clear();
  size_t covered = 0;
  for (size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, covered)) {
    if (covered != at) spans->push_back({covered, at, false});
    covered = at + literal_.size();
    spans->push_back({at, covered, true});
  }
  if (covered != text.size()) spans->push_back({covered, text.size(), false});
  return absl::OkStatus();
}

}  // namespace quire
