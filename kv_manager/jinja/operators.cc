// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/operators.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kv_manager/jinja/percent_format.h"

namespace quire::jinja {
namespace {

using OrValue = absl::StatusOr<Value>;

std::string_view Symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "**";
  }
}

absl::Status NotDefinedFor(Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return InvalidArgument(value->undefined_message());
  }
  return InvalidArgument("cannot compute ", std::string(a.type_name()), " ", std::string(Symbol(op)), " ",
                         std::string(b.type_name()));
}

absl::Status TooLarge() {
  return InvalidArgument("the result of a calculation has more than 64 bits");
}

OrValue AddTexts(const Text& a, const Text& b, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(budget->Build(a.bytes.size() + b.bytes.size()));
  TextBuilder out;
  const bool is_markup = a.is_markup || b.is_markup;
  out.Append(is_markup && !a.is_markup ? EscapeHtml(a) : a);
  out.Append(is_markup && !b.is_markup ? EscapeHtml(b) : b);
  Text sum = out.Take();
  sum.is_markup = is_markup;
  return Value(std::move(sum));
}

OrValue AddLists(const List& a, const List& b, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(budget->BuildList(a.items.size() + b.items.size()));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return a.kind == List::Kind::kTuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

// A string or list, `count` times.
OrValue Repeat(const Value& value, int64_t count, Budget* budget) {
  count = std::max<int64_t>(0, count);
  if (const Text* text = value.as_text()) {
    const size_t limit = budget->limits().max_output_bytes;
    const size_t size = text->bytes.size();
    const bool fits = size == 0 || static_cast<size_t>(count) <= limit / size;
    QUIRE_RETURN_IF_ERROR(budget->Build(fits ? size * static_cast<size_t>(count) : limit + 1));
    TextBuilder out;
    for (int64_t i = 0; size > 0 && i < count; ++i) out.Append(*text);
    return Value(out.Take());
  }
  const List& list = *value.as_list();
  const size_t size = list.items.size();
  QUIRE_RETURN_IF_ERROR(budget->BuildList(size * static_cast<size_t>(std::min<int64_t>(count, 1 << 30))));
  std::vector<Value> items;
  for (int64_t i = 0; size > 0 && i < count; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  return list.kind == List::Kind::kTuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

OrValue CalculateIntegers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      return __builtin_add_overflow(a, b, &result) ? OrValue(TooLarge()) : Value(result);
    case Operator::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? OrValue(TooLarge()) : Value(result);
    case Operator::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? OrValue(TooLarge()) : Value(result);
    case Operator::kDivide:
      if (b == 0) return InvalidArgument("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0) return InvalidArgument("division by zero");
      if (b == -1) {
        if (op == Operator::kModulo) return Value(int64_t{0});
        return __builtin_sub_overflow(int64_t{0}, a, &result) ? OrValue(TooLarge()) : Value(result);
      }
      const bool rounds_up = a % b != 0 && (a < 0) != (b < 0);
      return Value(op == Operator::kModulo ? a % b + (rounds_up ? b : 0) : a / b - (rounds_up ? 1 : 0));
    }
    default:
      break;
  }
  if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  result = 1;
  // A power of 64 bits has few factors, unless the base is 0, 1 or -1.
  const int64_t count = a >= -1 && a <= 1 ? (b == 0 ? 0 : 2 - b % 2) : b;
  for (int64_t i = 0; i < count; ++i) {
    if (__builtin_mul_overflow(result, a, &result)) return TooLarge();
  }
  return Value(result);
}

OrValue CalculateFloats(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kPower:
      return Value(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return InvalidArgument("division by zero");
  if (op == Operator::kDivide) return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == Operator::kModulo) return Value(rest);
  return Value(std::floor((a - rest) / b + 0.5));
}

}  // namespace

absl::StatusOr<Value> Calculate(Operator op, const Value& a, const Value& b, Budget* budget) {
  int64_t integers[2];
  const bool has_integers[2] = {a.GetInteger(&integers[0]), b.GetInteger(&integers[1])};
  if (has_integers[0] && has_integers[1]) return CalculateIntegers(op, integers[0], integers[1]);
  double numbers[2];
  if (a.GetNumber(&numbers[0]) && b.GetNumber(&numbers[1])) return CalculateFloats(op, numbers[0], numbers[1]);
  const Text* texts[2] = {a.as_text(), b.as_text()};
  const List* lists[2] = {a.as_list(), b.as_list()};
  const auto is_list = [](const List* list) { return list != nullptr && list->kind != List::Kind::kGenerator; };
  if (op == Operator::kAdd) {
    if (texts[0] != nullptr && texts[1] != nullptr) return AddTexts(*texts[0], *texts[1], budget);
    if (is_list(lists[0]) && is_list(lists[1]) && lists[0]->kind == lists[1]->kind) {
      return AddLists(*lists[0], *lists[1], budget);
    }
  }
  if (op == Operator::kMultiply) {
    for (int i = 0; i < 2; ++i) {
      if ((texts[i] != nullptr || is_list(lists[i])) && has_integers[1 - i]) {
        return Repeat(i == 0 ? a : b, integers[1 - i], budget);
      }
    }
  }
  if (op == Operator::kModulo && texts[0] != nullptr && !b.is_undefined()) return FormatPercent(*texts[0], b, budget);
  return NotDefinedFor(op, a, b);
}

absl::StatusOr<bool> Compare(Operator op, const Value& a, const Value& b, Budget* budget) {
  switch (op) {
    case Operator::kEqual:
    case Operator::kNotEqual: {
      QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(a, b, budget));
      return is_equal == (op == Operator::kEqual);
    }
    case Operator::kIn:
    case Operator::kNotIn: {
      QUIRE_ASSIGN_OR_RETURN(const bool is_in, Contains(b, a, budget));
      return is_in == (op == Operator::kIn);
    }
    default:
      break;
  }
  // Numbers that are not a number are neither less nor greater.
  double numbers[2];
  if (a.GetNumber(&numbers[0]) && b.GetNumber(&numbers[1]) && (std::isnan(numbers[0]) || std::isnan(numbers[1]))) {
    return false;
  }
  const bool swaps = op == Operator::kGreater || op == Operator::kLessOrEqual;
  QUIRE_ASSIGN_OR_RETURN(const bool is_less, swaps ? Less(b, a, budget) : Less(a, b, budget));
  return is_less == (op == Operator::kLess || op == Operator::kGreater);
}

absl::StatusOr<Value> Negate(const Value& value) {
  int64_t integer = 0;
  if (value.GetInteger(&integer)) {
    return __builtin_sub_overflow(int64_t{0}, integer, &integer) ? OrValue(TooLarge()) : Value(integer);
  }
  if (value.as_float() != nullptr) return Value(-*value.as_float());
  if (value.is_undefined()) return InvalidArgument(value.undefined_message());
  return InvalidArgument("a value of type ", std::string(value.type_name()), " has no negative");
}

}  // namespace quire::jinja
