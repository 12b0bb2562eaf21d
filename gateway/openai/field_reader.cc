// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/field_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"

namespace quire {
namespace {

constexpr size_t kMaxShownBytes = 40;

}  // namespace

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "is an object";
    case Json::value_t::array:
      return "is a list";
    default: {
      std::string text = Dump(value);
      if (text.size() > kMaxShownBytes) text = value.is_string() ? "a string" : "a number";
      return absl::StrCat("is ", text);
    }
  }
}

bool IsTokenId(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= UINT32_MAX;
}

FieldReader::FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

void FieldReader::Fail(absl::string_view name, absl::string_view description) {
  Fail(FieldError(absl::StrCat(path_, name), description));
}

void FieldReader::Fail(ApiError error) {
  if (!error_.has_value()) error_ = std::move(error);
}

const Json* FieldReader::Find(const char* name) {
  known_.emplace_back(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<bool> FieldReader::Bool(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, absl::StrCat(Describe(*value), ", it must be true or false"));
  return std::nullopt;
}

std::optional<double> FieldReader::Number(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  Fail(name, absl::StrCat(Describe(*value), ", it must be a number"));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(const char* name, int64_t min, int64_t max) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  if (value->is_number_unsigned()) {
    const auto unsigned_number = value->get<uint64_t>();
    if (unsigned_number <= INT64_MAX) number = static_cast<int64_t>(unsigned_number);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {
    const double real = value->get<double>();
    if (std::floor(real) == real && std::abs(real) < 1e15) number = static_cast<int64_t>(real);
  }
  if (number.has_value() && *number >= min && *number <= max) return number;
  Fail(name, absl::StrCat(Describe(*value), ", it must be a whole number from ", min, " to ", max));
  return std::nullopt;
}

std::optional<uint64_t> FieldReader::Bits(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (value->is_number_integer()) return static_cast<uint64_t>(value->get<int64_t>());
  if (value->is_number_float()) {
    const double real = value->get<double>();
    if (std::floor(real) == real && std::abs(real) < 1e15) return static_cast<uint64_t>(static_cast<int64_t>(real));
  }
  Fail(name, absl::StrCat(Describe(*value), ", it must be a whole number from ", INT64_MIN, " to ", UINT64_MAX));
  return std::nullopt;
}

std::optional<std::string> FieldReader::String(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, absl::StrCat(Describe(*value), ", it must be a string"));
  return std::nullopt;
}

const Json* FieldReader::Object(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  Fail(name, absl::StrCat(Describe(*value), ", it must be an object"));
  return nullptr;
}

std::vector<uint32_t> FieldReader::TokenIds(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    Fail(name, absl::StrCat(Describe(*value), ", it must be a list of token ids"));
    return {};
  }
  std::vector<uint32_t> ids;
  ids.reserve(value->size());
  for (const Json& id : *value) {
    if (!IsTokenId(id)) {
      Fail(absl::StrCat(name, "[", ids.size(), "]"), absl::StrCat(Describe(id), ", it must be a token id"));
      return {};
    }
    ids.push_back(id.get<uint32_t>());
  }
  return ids;
}

std::vector<std::string> FieldReader::Strings(const char* name) {
  const Json* const value = Find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) {
    Fail(name, absl::StrCat(Describe(*value), ", it must be a string or a list of strings"));
    return {};
  }
  std::vector<std::string> texts;
  for (const Json& text : *value) {
    if (!text.is_string()) {
      Fail(absl::StrCat(name, "[", texts.size(), "]"), absl::StrCat(Describe(text), ", it must be a string"));
      return {};
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

void FieldReader::Ignore(std::initializer_list<const char*> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void FieldReader::Refuse(const char* name, absl::string_view reason) {
  if (Find(name) != nullptr) {
    Fail({.message = absl::StrCat(path_, name, " is not supported: ", reason),
          .param = absl::StrCat(path_, name),
          .code = "unsupported_parameter"});
  }
}

void FieldReader::RefuseOthers() {
  if (error_.has_value()) return;
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string nearest = NearestName(name, known_);
    return Fail({.message = absl::StrCat(path_, name, " is not known to this server",
                                         nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")),
                 .param = absl::StrCat(path_, name),
                 .code = "unknown_parameter"});
  }
}

}  // namespace quire
