// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_JSON_VALUE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_JSON_VALUE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// A value inside a JSON document with its path, for error messages such as
// "tokenizer.json: model.vocab: expected an object, found an array". A view: the document must outlive it.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  const nlohmann::json& raw() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  // Returns InvalidArgument with the path in front of `message`.
  absl::Status Error(std::string_view message) const;

  // These return the value as the type in their name. InvalidArgument when it has another type. Strings are views of
  // the document.
  absl::StatusOr<std::string_view> AsString() const;
  absl::StatusOr<bool> AsBool() const;
  absl::StatusOr<int64_t> AsInteger() const;
  absl::StatusOr<std::vector<JsonValue>> AsArray() const;

  // Both return a member of this object. When it is missing, Member() returns InvalidArgument and Find() the null
  // value.
  absl::StatusOr<JsonValue> Member(std::string_view key) const;
  absl::StatusOr<JsonValue> Find(std::string_view key) const;
  // These return a member's value, or `otherwise` when the member is missing or null.
  absl::StatusOr<bool> BoolOr(std::string_view key, bool otherwise) const;
  absl::StatusOr<std::string_view> StringOr(std::string_view key, std::string_view otherwise) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  absl::StatusOr<std::vector<JsonValue>> Array(std::string_view key) const;

  // Returns the element or member of this value. `label` is its part of the path.
  JsonValue Child(const nlohmann::json& value, std::string_view label) const;

 private:
  absl::Status WrongType(std::string_view expected) const;

  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_JSON_VALUE_H_
