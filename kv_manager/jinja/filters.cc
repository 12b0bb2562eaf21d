// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/filters.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kv_manager/jinja/access.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/methods.h"
#include "kv_manager/jinja/sequence_filters.h"
#include "kv_manager/jinja/text_filters.h"

namespace quire::jinja {
namespace {

using OrValue = absl::StatusOr<Value>;
using Bound = std::vector<std::optional<Value>>;

absl::Status NeedsDefined(const Value& value) {
  return value.is_undefined() ? InvalidArgument(value.undefined_message()) : absl::OkStatus();
}

OrValue ToJsonFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = BoolOr(bound[0], false);
  style.sort_keys = BoolOr(bound[3], false);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    constexpr size_t kMaxIndentBytes = 100;
    if (const Text* indent = bound[1]->as_text()) {
      if (indent->bytes.size() > kMaxIndentBytes) {
        return InvalidArgument("the indent has ", indent->bytes.size(), " bytes, at most ", kMaxIndentBytes,
                               " are allowed");
      }
      style.indent = *indent;
    } else {
      QUIRE_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[1], 0));
      if (width > 100) return InvalidArgument("the indent ", width, " is above 100");
      style.indent.emplace().bytes = std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
    }
    style.item_separator.bytes = ",";
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    const List* pair = bound[2]->as_list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].as_text() == nullptr ||
        pair->items[1].as_text() == nullptr) {
      return InvalidArgument("the separators must be a pair of strings");
    }
    style.item_separator = *pair->items[0].as_text();
    style.key_separator = *pair->items[1].as_text();
  }
  QUIRE_ASSIGN_OR_RETURN(Text text, ToJson(value, style, budget));
  return Value(std::move(text));
}

OrValue DefaultFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"default_value", "boolean"}));
  if (!value.is_undefined() && (!BoolOr(bound[1], false) || value.IsTrue())) return value;
  return bound[0].value_or(Value(""));
}

OrValue StringFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  if (value.as_text() != nullptr) return value;
  QUIRE_ASSIGN_OR_RETURN(Text text, ToText(value, budget));
  return Value(std::move(text));
}

OrValue IntFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"default", "base"}));
  QUIRE_ASSIGN_OR_RETURN(const int64_t base, IntegerOr(bound[1], 10));
  if (base != 10) return InvalidArgument("the base ", base, " is not supported");
  QUIRE_RETURN_IF_ERROR(NeedsDefined(value));
  int64_t integer = 0;
  if (value.GetInteger(&integer)) return Value(integer);
  double number = 0;
  bool is_number = value.GetNumber(&number);
  if (const Text* text = value.as_text()) {
    if (absl::SimpleAtoi(text->bytes, &integer)) return Value(integer);
    is_number = absl::SimpleAtod(text->bytes, &number);
  }
  if (is_number && std::abs(number) < 9e18) return Value(static_cast<int64_t>(number));
  return bound[0].value_or(Value(int64_t{0}));
}

OrValue FloatFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"default"}));
  QUIRE_RETURN_IF_ERROR(NeedsDefined(value));
  double number = 0;
  if (value.GetNumber(&number)) return Value(number);
  if (value.as_text() != nullptr && absl::SimpleAtod(value.as_text()->bytes, &number)) return Value(number);
  return bound[0].value_or(Value(0.0));
}

OrValue AbsFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  int64_t integer = 0;
  if (value.GetInteger(&integer) && integer != INT64_MIN) return Value(integer < 0 ? -integer : integer);
  if (value.as_float() != nullptr) return Value(std::abs(*value.as_float()));
  return InvalidArgument("needs a number, not a value of type ", std::string(value.type_name()));
}

OrValue RoundFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"precision", "method"}));
  QUIRE_ASSIGN_OR_RETURN(const int64_t precision, IntegerOr(bound[0], 0));
  const std::string method =
      bound[1].has_value() && bound[1]->as_text() != nullptr ? bound[1]->as_text()->bytes : "common";
  double number = 0;
  if (!value.GetNumber(&number))
    return InvalidArgument("needs a number, not a value of type ", std::string(value.type_name()));
  if (precision < 0 || precision > 30) return InvalidArgument("the precision ", precision, " is not in 0 .. 30");
  if (method == "common") {
    int64_t integer = 0;
    if (value.GetInteger(&integer)) return Value(integer);
    if (!absl::SimpleAtod(absl::StrFormat("%.*f", static_cast<int>(precision), number), &number)) {
      return InvalidArgument("the number cannot be rounded");
    }
    return Value(number);
  }
  if (method != "ceil" && method != "floor") return InvalidArgument("there is no method \"", method, "\"");
  const double factor = std::pow(10.0, static_cast<double>(precision));
  return Value((method == "ceil" ? std::ceil(number * factor) : std::floor(number * factor)) / factor);
}

OrValue AttrFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"name"}));
  if (!bound[0].has_value() || bound[0]->as_text() == nullptr) return InvalidArgument("needs the name of an attribute");
  // Unlike a dot, this filter does not look into dictionaries.
  if (value.as_dict() != nullptr && !HasMethod(value, bound[0]->as_text()->bytes)) {
    return Value::MakeUndefined("a dictionary has no such attribute");
  }
  return GetAttribute(value, bound[0]->as_text()->bytes);
}

}  // namespace

Filter FindFilter(std::string_view name) {
  static const auto* filters = new absl::flat_hash_map<std::string_view, Filter>{
      {"abs", AbsFilter},         {"attr", AttrFilter},     {"d", DefaultFilter},
      {"default", DefaultFilter}, {"float", FloatFilter},   {"int", IntFilter},
      {"round", RoundFilter},     {"string", StringFilter}, {"tojson", ToJsonFilter},
  };
  if (const auto found = filters->find(name); found != filters->end()) return found->second;
  const Filter filter = FindSequenceFilter(name);
  return filter != nullptr ? filter : FindTextFilter(name);
}

}  // namespace quire::jinja
