// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"
#include "base/number_text.h"

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

FieldReader::FieldReader(const Json& object, std::string path, IgnoredFields* ignored)
    : object_(object), path_(std::move(path)), ignored_(ignored) {}

FieldReader::FieldReader(const Json& object, std::string path, FieldReader* parent)
    : object_(object), path_(std::move(path)), ignored_(parent->ignored_), parent_(parent) {}

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

std::optional<float> FieldReader::Float(const char* name) {
  const Json* const value = Find(name);
  return value == nullptr ? std::nullopt : FloatOf(*value, name);
}

std::optional<float> FieldReader::FloatOf(const Json& value, absl::string_view path) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (!value.is_number()) {
    Fail(path, absl::StrCat(Describe(value), ", it must be a number"));
    return std::nullopt;
  }
  const double real = value.get<double>();
  if (std::abs(real) > kLargest) {
    Fail(path, absl::StrCat(Describe(value), ", it must be a number from ", NumberText(-kLargest), " to ",
                            NumberText(kLargest)));
    return std::nullopt;
  }
  const auto rounded = static_cast<float>(real);
  if (rounded != 0 || real == 0) return rounded;
  return static_cast<float>(std::copysign(std::numeric_limits<float>::denorm_min(), real));
}

template <typename Number>
std::optional<Number> FieldReader::Whole(const char* name, int64_t min, Number max) {
  constexpr double kExact = 9007199254740992;  // 2^53: doubles below it have all digits.
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number <= static_cast<uint64_t>(max) && (min <= 0 || number >= static_cast<uint64_t>(min))) {
      return static_cast<Number>(number);
    }
  } else if (value->is_number_integer()) {
    const auto number = value->get<int64_t>();
    if (number >= min && (number < 0 || static_cast<uint64_t>(number) <= static_cast<uint64_t>(max))) {
      return static_cast<Number>(number);
    }
  } else if (value->is_number_float()) {
    const double real = value->get<double>();
    const auto least = static_cast<double>(min), most = static_cast<double>(max);
    if (std::floor(real) == real && real >= least && real <= most && std::abs(real) < kExact) {
      return static_cast<Number>(static_cast<int64_t>(real));
    }
    // An integer just beyond 64 bits was rounded to the limit when it was read.
    if (std::abs(real) >= kExact && real > least && real < most) {
      Fail(name,
           absl::StrCat(Describe(*value), ", which has a point or an exponent; such a number must be below 2^53, so ",
                        "write all of its digits"));
      return std::nullopt;
    }
  }
  Fail(name, absl::StrCat(Describe(*value), ", it must be a whole number from ", min, " to ", max));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(const char* name, int64_t min, int64_t max) {
  return Whole<int64_t>(name, min, max);
}

std::optional<uint64_t> FieldReader::Bits(const char* name) {
  return Whole<uint64_t>(name, INT64_MIN, UINT64_MAX);
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
      Fail(absl::StrCat(name, "[", ids.size(), "]"), absl::StrCat(Describe(id), kNoTokenId));
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

void FieldReader::AcceptOnly(const char* name, const char* neutral, absl::string_view reason) {
  const Json* const value = Find(name);
  if (value == nullptr) return;
  const Json accepted = Json::parse(neutral);
  if (std::find(accepted.begin(), accepted.end(), *value) != accepted.end()) return;
  Fail({.message = absl::StrCat(path_, name, " ", Describe(*value), ", which is not supported: ", reason),
        .param = absl::StrCat(path_, name),
        .code = "unsupported_parameter"});
}

void FieldReader::Refuse(const char* name, absl::string_view reason) {
  if (Find(name) != nullptr) {
    Fail({.message = absl::StrCat(path_, name, " is not supported: ", reason),
          .param = absl::StrCat(path_, name),
          .code = "unsupported_parameter"});
  }
}

void FieldReader::RefuseOthers() {
  NoteOthers();
  if (parent_ != nullptr && error_.has_value()) parent_->Fail(*error_);
}

void FieldReader::NoteOthers() {
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    if (error_.has_value()) {
      ExplainMissing(name);
      continue;
    }
    if (ignored_ != nullptr) {
      if (ignored_->names.size() < IgnoredFields::kMaxNames) ignored_->names.push_back(absl::StrCat(path_, name));
      ++ignored_->count;
      continue;
    }
    const std::string nearest = NearestName(name, known_);
    return Fail({.message = absl::StrCat(path_, name, " is not known to this server",
                                         nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")),
                 .param = absl::StrCat(path_, name),
                 .code = "unknown_parameter"});
  }
}

void FieldReader::ExplainMissing(const std::string& unknown) {
  const std::string missing(absl::StripPrefix(error_->param.value_or(""), path_));
  if (object_.contains(missing) || NearestName(unknown, {missing}).empty()) return;
  absl::StrAppend(&error_->message, "; ", path_, unknown, " is not known to this server; did you mean ", missing, "?");
}

}  // namespace quire
