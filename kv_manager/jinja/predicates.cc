// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/predicates.h"

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"

namespace quire::jinja {
namespace {

using OrBool = absl::StatusOr<bool>;

absl::StatusOr<Value> OnlyArgument(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return InvalidArgument("the test takes one argument, got ", arguments.positional.size() + arguments.named.size());
  }
  return arguments.positional.front();
}

OrBool IsEqual(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Value other, OnlyArgument(arguments));
  return Equal(value, other, budget);
}

OrBool IsNotEqual(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_equal, IsEqual(value, arguments, budget));
  return !is_equal;
}

OrBool IsLess(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Value other, OnlyArgument(arguments));
  return Less(value, other, budget);
}

OrBool IsGreater(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Value other, OnlyArgument(arguments));
  return Less(other, value, budget);
}

OrBool IsLessOrEqual(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_greater, IsGreater(value, arguments, budget));
  return !is_greater;
}

OrBool IsGreaterOrEqual(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_less, IsLess(value, arguments, budget));
  return !is_less;
}

OrBool IsIn(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Value container, OnlyArgument(arguments));
  return Contains(container, value, budget);
}

OrBool IsSameAs(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Value other, OnlyArgument(arguments));
  return AreIdentical(value, other);
}

absl::StatusOr<int64_t> Integer(const Value& value) {
  int64_t integer = 0;
  if (value.GetInteger(&integer)) return integer;
  if (value.is_undefined()) return InvalidArgument(value.undefined_message());
  return InvalidArgument("the test needs an integer, got a value of type ", std::string(value.type_name()));
}

OrBool IsDivisibleBy(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Value divisor, OnlyArgument(arguments));
  QUIRE_ASSIGN_OR_RETURN(const int64_t a, Integer(value));
  QUIRE_ASSIGN_OR_RETURN(const int64_t b, Integer(divisor));
  if (b == 0) return InvalidArgument("the test divides by zero");
  return b == -1 || a % b == 0;
}

OrBool IsOdd(const Value& value, const Arguments&, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t integer, Integer(value));
  return integer % 2 != 0;
}

OrBool IsEven(const Value& value, const Arguments&, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t integer, Integer(value));
  return integer % 2 == 0;
}

bool HasElements(const Value& value) {
  return value.as_text() != nullptr || value.as_dict() != nullptr || value.is_undefined();
}

OrBool IsIterable(const Value& value, const Arguments&, Budget*) {
  return HasElements(value) || value.as_list() != nullptr || value.as_loop() != nullptr;
}

OrBool IsSequence(const Value& value, const Arguments&, Budget*) {
  const List* list = value.as_list();
  return HasElements(value) || (list != nullptr && list->kind != List::Kind::kGenerator);
}

OrBool IsLowerText(const Value& value, const Arguments&, Budget*) {
  return value.as_text() != nullptr && Is(CharacterClass::kLower, value.as_text()->bytes);
}

OrBool IsUpperText(const Value& value, const Arguments&, Budget*) {
  return value.as_text() != nullptr && Is(CharacterClass::kUpper, value.as_text()->bytes);
}

OrBool IsDefined(const Value& value, const Arguments&, Budget*) {
  return !value.is_undefined();
}
OrBool IsUndefined(const Value& value, const Arguments&, Budget*) {
  return value.is_undefined();
}
OrBool IsNone(const Value& value, const Arguments&, Budget*) {
  return value.is_none();
}
OrBool IsBoolean(const Value& value, const Arguments&, Budget*) {
  return value.as_bool() != nullptr;
}
OrBool IsTrueConstant(const Value& value, const Arguments&, Budget*) {
  return value.as_bool() != nullptr && *value.as_bool();
}
OrBool IsFalseConstant(const Value& value, const Arguments&, Budget*) {
  return value.as_bool() != nullptr && !*value.as_bool();
}
OrBool IsInteger(const Value& value, const Arguments&, Budget*) {
  return value.as_int() != nullptr || value.as_big_integer() != nullptr;
}
OrBool IsFloat(const Value& value, const Arguments&, Budget*) {
  return value.as_float() != nullptr;
}
OrBool IsNumber(const Value& value, const Arguments&, Budget*) {
  return value.is_number();
}
OrBool IsString(const Value& value, const Arguments&, Budget*) {
  return value.as_text() != nullptr;
}
OrBool IsMapping(const Value& value, const Arguments&, Budget*) {
  return value.as_dict() != nullptr;
}
OrBool IsCallable(const Value& value, const Arguments&, Budget*) {
  return value.as_function() != nullptr;
}
OrBool IsEscaped(const Value& value, const Arguments&, Budget*) {
  return value.as_text() != nullptr && value.as_text()->is_markup;
}

}  // namespace

Predicate FindPredicate(std::string_view name) {
  static const auto* predicates = new absl::flat_hash_map<std::string_view, Predicate>{
      {"defined", IsDefined},
      {"undefined", IsUndefined},
      {"none", IsNone},
      {"boolean", IsBoolean},
      {"true", IsTrueConstant},
      {"false", IsFalseConstant},
      {"integer", IsInteger},
      {"float", IsFloat},
      {"number", IsNumber},
      {"string", IsString},
      {"mapping", IsMapping},
      {"iterable", IsIterable},
      {"sequence", IsSequence},
      {"callable", IsCallable},
      {"escaped", IsEscaped},
      {"sameas", IsSameAs},
      {"lower", IsLowerText},
      {"upper", IsUpperText},
      {"odd", IsOdd},
      {"even", IsEven},
      {"divisibleby", IsDivisibleBy},
      {"in", IsIn},
      {"==", IsEqual},
      {"eq", IsEqual},
      {"equalto", IsEqual},
      {"!=", IsNotEqual},
      {"ne", IsNotEqual},
      {">", IsGreater},
      {"gt", IsGreater},
      {"greaterthan", IsGreater},
      {"<", IsLess},
      {"lt", IsLess},
      {"lessthan", IsLess},
      {">=", IsGreaterOrEqual},
      {"ge", IsGreaterOrEqual},
      {"<=", IsLessOrEqual},
      {"le", IsLessOrEqual},
  };
  const auto found = predicates->find(name);
  return found == predicates->end() ? nullptr : found->second;
}

}  // namespace quire::jinja
