// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/globals.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "kv_manager/jinja/access.h"

namespace quire::jinja {
namespace {

using OrValue = absl::StatusOr<Value>;
using Bound = std::vector<std::optional<Value>>;

constexpr std::string_view kNames[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
constexpr int64_t kMaxRange = 100'000;  // The sandbox of jinja2 has the same limit.

OrValue RaiseException(const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"message"}));
  QUIRE_ASSIGN_OR_RETURN(const Text message, ToText(bound[0].value_or(Value("")), budget));
  constexpr size_t kMaxMessageBytes = 1000;
  const std::string_view shown = message.bytes;
  size_t end = std::min(shown.size(), kMaxMessageBytes);
  while (end < shown.size() && end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
  return InvalidArgument(std::string(shown.substr(0, end)));
}

OrValue FormatNow(const Arguments& arguments, absl::Time now, absl::TimeZone time_zone) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"format"}));
  if (!bound[0].has_value() || bound[0]->as_text() == nullptr) return InvalidArgument("needs a format");
  const std::string& format = bound[0]->as_text()->bytes;
  if (format.size() > 1000) return InvalidArgument("the format has more than 1000 bytes");
  TextBuilder out;
  out.Append(absl::FormatTime(format, now, time_zone), /*from_user=*/!bound[0]->as_text()->user.empty());
  return Value(out.Take());
}

OrValue MakeRange(const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"a", "b", "c"}));
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (bound[i].has_value() && !bound[i]->GetInteger(&numbers[i])) return InvalidArgument("needs integers");
  }
  if (!bound[0].has_value()) return InvalidArgument("needs an argument");
  if (!bound[1].has_value()) std::swap(numbers[0], numbers[1]);
  if (numbers[2] == 0) return InvalidArgument("the step cannot be zero");
  std::vector<Value> values;
  for (int64_t i = numbers[0]; numbers[2] > 0 ? i < numbers[1] : i > numbers[1];) {
    if (static_cast<int64_t>(values.size()) >= kMaxRange) {
      return InvalidArgument("the range has more than ", kMaxRange, " elements");
    }
    values.push_back(Value(i));
    if (__builtin_add_overflow(i, numbers[2], &i)) break;
  }
  QUIRE_RETURN_IF_ERROR(budget->BuildList(values.size()));
  return Value::MakeList(std::move(values));
}

// The arguments are a dictionary, or pairs, and named values.
absl::StatusOr<Dict> MakeDict(const Arguments& arguments, Budget* budget) {
  Dict dict;
  if (arguments.positional.size() > 1) return InvalidArgument("takes at most 1 positional argument");
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional.front();
    if (const Dict* given = first.as_dict()) {
      dict = *given;
    } else {
      QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> pairs, Iterate(first, budget));
      for (const Value& pair : pairs) {
        QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> parts, Iterate(pair, budget));
        if (parts.size() != 2) return InvalidArgument("needs a dictionary or pairs");
        QUIRE_RETURN_IF_ERROR(dict.Set(parts[0], parts[1]));
      }
    }
  }
  for (const auto& [key, value] : arguments.named) QUIRE_RETURN_IF_ERROR(dict.Set(Value(key), value));
  QUIRE_RETURN_IF_ERROR(budget->BuildList(kKeptElements + dict.entries.size()));
  return dict;
}

}  // namespace

Globals::~Globals() {
  for (const std::shared_ptr<Namespace>& names : namespaces_) names->values = Dict();
}

bool Globals::Has(std::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

absl::StatusOr<Value> Globals::Call(std::string_view name, const Arguments& arguments, Budget* budget) {
  if (name == "raise_exception") return RaiseException(arguments, budget);
  if (name == "strftime_now") return FormatNow(arguments, now_, time_zone_);
  if (name == "range") return MakeRange(arguments, budget);
  QUIRE_ASSIGN_OR_RETURN(Dict dict, MakeDict(arguments, budget));
  if (name == "dict") return Value(std::make_shared<const Dict>(std::move(dict)));
  auto names = std::make_shared<Namespace>();
  names->values = std::move(dict);
  namespaces_.push_back(names);
  return Value(std::move(names));
}

}  // namespace quire::jinja
