// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/json_value.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

const nlohmann::json& NullJson() {
  static const nlohmann::json* const null = new nlohmann::json();
  return *null;
}

}  // namespace

absl::Status JsonValue::Error(std::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", std::string(message)));
}

absl::Status JsonValue::WrongType(std::string_view expected) const {
  return Error(absl::StrCat("expected ", std::string(expected), ", found ", value_->type_name()));
}

absl::StatusOr<std::string_view> JsonValue::AsString() const {
  if (!value_->is_string()) return WrongType("a string");
  return std::string_view(*value_->get_ptr<const std::string*>());
}

absl::StatusOr<bool> JsonValue::AsBool() const {
  if (!value_->is_boolean()) return WrongType("a boolean");
  return *value_->get_ptr<const bool*>();
}

absl::StatusOr<int64_t> JsonValue::AsInteger() const {
  if (!value_->is_number_integer()) return WrongType("an integer");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return Error(absl::StrCat("integer ", value_->get<uint64_t>(), " is too large"));
  }
  return value_->get<int64_t>();
}

absl::StatusOr<std::vector<JsonValue>> JsonValue::AsArray() const {
  if (!value_->is_array()) return WrongType("an array");
  std::vector<JsonValue> elements;
  elements.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    elements.emplace_back((*value_)[i], absl::StrCat(path_, "[", i, "]"));
  }
  return elements;
}

absl::StatusOr<JsonValue> JsonValue::Find(std::string_view key) const {
  if (!value_->is_object()) return WrongType("an object");
  const auto it = value_->find(std::string(key));
  return Child(it == value_->end() ? NullJson() : *it, key);
}

absl::StatusOr<JsonValue> JsonValue::Member(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(JsonValue member, Find(key));
  if (member.value_ == &NullJson()) return member.Error("is missing");
  return member;
}

absl::StatusOr<bool> JsonValue::BoolOr(std::string_view key, bool otherwise) const {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, Find(key));
  if (member.is_null()) return otherwise;
  return member.AsBool();
}

absl::StatusOr<std::string_view> JsonValue::StringOr(std::string_view key, std::string_view otherwise) const {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, Find(key));
  if (member.is_null()) return otherwise;
  return member.AsString();
}

absl::StatusOr<bool> JsonValue::Bool(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, Member(key));
  return member.AsBool();
}

absl::StatusOr<std::string_view> JsonValue::String(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, Member(key));
  return member.AsString();
}

absl::StatusOr<std::vector<JsonValue>> JsonValue::Array(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, Member(key));
  return member.AsArray();
}

JsonValue JsonValue::Child(const nlohmann::json& value, std::string_view label) const {
  const char* separator = path_.empty() || path_.back() == ' ' ? "" : ".";
  return JsonValue(value, absl::StrCat(path_, separator, std::string(label)));
}

}  // namespace quire
