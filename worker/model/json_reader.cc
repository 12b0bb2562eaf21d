// SPDX-License-Identifier: Apache-2.0

#include "worker/model/json_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"

namespace quire {
namespace {

using nlohmann::json;

bool ReadInt(const json& value, int64_t min, int64_t max, int64_t* result) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  *result = value.get<int64_t>();
  return *result >= min && *result <= max;
}

}  // namespace

absl::StatusOr<json> ParseModelJson(std::string_view text, const std::string& file) {
  return ReadJson<json>(text, file, {.max_depth = 32, .allows_repeated_keys = false});
}

JsonFields::JsonFields(const json& object, const std::string& file, const std::string& prefix)
    : object_(object), file_(file), prefix_(prefix) {}

JsonFields JsonFields::Inner(const json& object, const std::string& name) const {
  return JsonFields(object, file_, absl::StrCat(prefix_, name, "."));
}

bool JsonFields::Has(const char* name) const {
  return Find(name) != nullptr;
}

bool JsonFields::IsNull(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && found->is_null();
}

const json* JsonFields::Find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

absl::Status JsonFields::Bad(const char* name, const std::string& allowed) const {
  const json* value = Find(name);
  return absl::InvalidArgumentError(absl::StrCat(
      file_, ": ", prefix_, name, value == nullptr ? " is missing" : " is " + Shown(*value), ", must be ", allowed));
}

absl::StatusOr<int64_t> JsonFields::Int(const char* name, int64_t min, int64_t max,
                                        std::optional<int64_t> fallback) const {
  const json* value = Find(name);
  if (value == nullptr && fallback) return *fallback;
  int64_t result;
  if (value != nullptr && ReadInt(*value, min, max, &result)) return result;
  return Bad(name, absl::StrCat("an integer in ", min, " .. ", max));
}

absl::StatusOr<double> JsonFields::Number(const char* name, double min, double max,
                                          std::optional<double> fallback) const {
  const json* value = Find(name);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (number >= min && number <= max) return number;
  }
  return Bad(name, absl::StrCat("a number in ", LimitText(min), " .. ", LimitText(max)));
}

absl::StatusOr<bool> JsonFields::Bool(const char* name, std::optional<bool> fallback) const {
  const json* value = Find(name);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  return Bad(name, "true or false");
}

absl::StatusOr<std::string> JsonFields::String(const char* name, std::optional<std::string> fallback) const {
  const json* value = Find(name);
  if (value == nullptr && fallback) return *std::move(fallback);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  return Bad(name, "a string");
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Ints(const char* name, int64_t min, int64_t max) const {
  std::vector<int64_t> result;
  const json* value = Find(name);
  if (value == nullptr) return result;
  const std::string allowed = absl::StrCat("an integer in ", min, " .. ", max, " or an array of them");
  int64_t number;
  if (!value->is_array()) {
    if (!ReadInt(*value, min, max, &number)) return Bad(name, allowed);
    result.push_back(number);
    return result;
  }
  for (const json& element : *value) {
    if (!ReadInt(element, min, max, &number)) return Bad(name, allowed);
    result.push_back(number);
  }
  return result;
}

absl::StatusOr<std::vector<double>> JsonFields::Numbers(const char* name, double min, double max, int count) const {
  const json* value = Find(name);
  const std::string allowed =
      absl::StrCat("an array of ", count, " numbers in ", LimitText(min), " .. ", LimitText(max));
  if (value == nullptr || !value->is_array() || value->size() != static_cast<size_t>(count)) return Bad(name, allowed);
  std::vector<double> result;
  for (const json& element : *value) {
    if (!element.is_number()) return Bad(name, allowed);
    const double number = element.get<double>();
    if (!(number >= min && number <= max)) return Bad(name, allowed);
    result.push_back(number);
  }
  return result;
}

absl::StatusOr<const json*> JsonFields::Object(const char* name) const {
  const json* value = Find(name);
  if (value != nullptr && !value->is_object()) return Bad(name, "an object");
  return value;
}

}  // namespace quire
