// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_fields.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/utf8.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

template <typename Number>
Number At(const GgufValue& value, uint64_t index) {
  Number number;
  std::memcpy(&number, value.bytes.data() + index * sizeof(Number), sizeof(Number));
  return number;
}

// Returns nothing when the elements are not whole numbers, or when one does not fit.
std::optional<int64_t> IntAt(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufType::kUint8:
      return At<uint8_t>(value, index);
    case GgufType::kInt8:
      return At<int8_t>(value, index);
    case GgufType::kUint16:
      return At<uint16_t>(value, index);
    case GgufType::kInt16:
      return At<int16_t>(value, index);
    case GgufType::kUint32:
      return At<uint32_t>(value, index);
    case GgufType::kInt32:
      return At<int32_t>(value, index);
    case GgufType::kInt64:
      return At<int64_t>(value, index);
    case GgufType::kUint64: {
      const uint64_t number = At<uint64_t>(value, index);
      if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(const GgufValue& value, uint64_t index) {
  if (value.type == GgufType::kFloat32) return At<float>(value, index);
  if (value.type == GgufType::kFloat64) return At<double>(value, index);
  const std::optional<int64_t> number = IntAt(value, index);
  if (!number) return std::nullopt;
  return static_cast<double>(*number);
}

// Returns whether all elements have the same bytes.
bool IsOneNumber(const GgufValue& value) {
  if (value.type == GgufType::kString || value.count == 0) return false;
  const size_t size = value.bytes.size() / value.count;
  return value.bytes.substr(size) == value.bytes.substr(0, value.bytes.size() - size);
}

// The first elements of a value, as they are shown in errors.
std::string ShownValue(const GgufValue& value) {
  constexpr uint64_t kMaxShown = 4;
  nlohmann::json shown = nlohmann::json::array();
  for (uint64_t i = 0; i < std::min(value.count, kMaxShown); ++i) {
    if (value.type == GgufType::kString) {
      shown.push_back(std::string(value.strings[i].substr(0, 80)));
    } else if (value.type == GgufType::kBool) {
      shown.push_back(value.bytes[i] != 0);
    } else if (const std::optional<int64_t> number = IntAt(value, i)) {
      shown.push_back(*number);
    } else if (value.type == GgufType::kUint64) {
      shown.push_back(At<uint64_t>(value, i));
    } else {
      shown.push_back(*NumberAt(value, i));
    }
  }
  if (!value.is_array) return Shown(shown[0]);
  return absl::StrCat("an array of ", value.count, " elements that begins with ", Shown(shown));
}

// A key of the file may have any bytes.
std::string ShownKey(const std::string& key) {
  const bool is_plain = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return is_plain ? key : Shown(nlohmann::json(key));
}

}  // namespace

const GgufValue* GgufFields::Find(const std::string& key) const {
  const auto found = contents_.metadata.find(key);
  return found == contents_.metadata.end() ? nullptr : &found->second;
}

absl::Status GgufFields::Bad(const std::string& key, const std::string& allowed) const {
  const GgufValue* value = Find(key);
  return absl::InvalidArgumentError(absl::StrCat(
      ShownKey(key), value == nullptr ? " is missing" : " is " + ShownValue(*value), ", must be ", allowed));
}

absl::StatusOr<int64_t> GgufFields::Int(const std::string& key, int64_t min, int64_t max,
                                        std::optional<int64_t> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && IsOneNumber(*value)) {
    const std::optional<int64_t> number = IntAt(*value, 0);
    if (number && *number >= min && *number <= max) return *number;
  }
  return Bad(key, absl::StrCat("an integer in ", min, " .. ", max));
}

absl::StatusOr<double> GgufFields::Number(const std::string& key, double min, double max,
                                          std::optional<double> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && IsOneNumber(*value)) {
    const std::optional<double> number = NumberAt(*value, 0);
    if (number && *number >= min && *number <= max) return *number;
  }
  return Bad(key, absl::StrCat("a number in ", LimitText(min), " .. ", LimitText(max)));
}

absl::StatusOr<bool> GgufFields::Bool(const std::string& key, std::optional<bool> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && !value->is_array && value->type == GgufType::kBool) return value->bytes[0] != 0;
  return Bad(key, "true or false");
}

absl::StatusOr<std::string> GgufFields::String(const std::string& key, std::optional<std::string> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback) return *std::move(fallback);
  if (value == nullptr || value->is_array || value->type != GgufType::kString) return Bad(key, "a string");
  QUIRE_RETURN_IF_ERROR(CheckUtf8(value->strings[0], key));
  return std::string(value->strings[0]);
}

absl::StatusOr<std::vector<std::string_view>> GgufFields::Strings(const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<std::string_view>();
  if (!value->is_array || value->type != GgufType::kString) return Bad(key, "an array of strings");
  for (size_t i = 0; i < value->strings.size(); ++i) {
    if (IsValidUtf8(value->strings[i])) continue;
    return CheckUtf8(value->strings[i], absl::StrCat(key, ", element ", i));
  }
  return value->strings;
}

absl::StatusOr<std::vector<double>> GgufFields::Numbers(const std::string& key) const {
  std::vector<double> numbers;
  const GgufValue* value = Find(key);
  if (value == nullptr) return numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<double> number = NumberAt(*value, i);
    if (!value->is_array || !number || !std::isfinite(*number)) return Bad(key, "an array of finite numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<bool>> GgufFields::Flags(const std::string& key, size_t count) const {
  std::vector<bool> flags;
  const GgufValue* value = Find(key);
  if (value == nullptr || !value->is_array) return flags;
  const std::string allowed = absl::StrCat("an array of ", count, " flags");
  if (value->count != count) return Bad(key, allowed);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = value->type == GgufType::kBool ? value->bytes[i] : IntAt(*value, i);
    if (!number || (*number != 0 && *number != 1)) return Bad(key, allowed);
    flags.push_back(*number == 1);
  }
  return flags;
}

bool GgufFields::IsNeutral(const std::string& key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return true;
  const auto is_empty = [](std::string_view text) { return text.empty(); };
  if (value->type == GgufType::kString) return std::all_of(value->strings.begin(), value->strings.end(), is_empty);
  return std::all_of(value->bytes.begin(), value->bytes.end(), [](char byte) { return byte == 0; });
}

}  // namespace quire
