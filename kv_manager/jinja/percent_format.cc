// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/percent_format.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/jinja/access.h"

namespace quire::jinja {
namespace {

constexpr int kMaxWidth = 1000;

// One conversion such as "%-5.2f".
struct Conversion {
  bool has_flag(char flag) const { return flags.find(flag) != std::string::npos; }

  std::string flags;
  int width = -1;
  int precision = -1;
  char kind = 's';
};

bool IsOneOf(char c, std::string_view characters) {
  return characters.find(c) != std::string_view::npos;
}

std::string FormatInteger(char kind, int64_t integer) {
  const uint64_t magnitude = integer < 0 ? -static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
  const char* const sign = integer < 0 ? "-" : "";
  switch (kind) {
    case 'x':
      return absl::StrFormat("%s%x", sign, magnitude);
    case 'X':
      return absl::StrFormat("%s%X", sign, magnitude);
    case 'o':
      return absl::StrFormat("%s%o", sign, magnitude);
    default:
      return absl::StrCat(sign, magnitude);
  }
}

std::string FormatFloat(char kind, int precision, double number) {
  switch (kind) {
    case 'f':
      return absl::StrFormat("%.*f", precision, number);
    case 'e':
      return absl::StrFormat("%.*e", precision, number);
    default:
      return absl::StrFormat("%.*g", precision, number);
  }
}

// Returns the text of a number, with a sign and with zeros up to the width if the flags ask for them.
absl::StatusOr<std::string> FormatNumber(const Conversion& conversion, const Value& value) {
  double number = 0;
  if (!value.GetNumber(&number)) {
    return InvalidArgument("%", std::string(1, conversion.kind), " needs a number, not a value of type ",
                           std::string(value.type_name()));
  }
  std::string text;
  if (IsOneOf(conversion.kind, "dixXo")) {
    int64_t integer = 0;
    if (!value.GetInteger(&integer)) {
      if (!(number > -9e18 && number < 9e18)) return InvalidArgument("a number is too large");
      integer = static_cast<int64_t>(number);
    }
    text = FormatInteger(conversion.kind, integer);
  } else {
    text = FormatFloat(conversion.kind, conversion.precision < 0 ? 6 : conversion.precision, number);
  }
  if (conversion.has_flag('+') && text.front() != '-') text.insert(0, "+");
  if (conversion.has_flag('0') && !conversion.has_flag('-')) {
    const size_t sign = IsOneOf(text.front(), "+-") ? 1 : 0;
    const size_t width = static_cast<size_t>(std::max(0, conversion.width));
    if (text.size() < width) text.insert(sign, width - text.size(), '0');
  }
  return text;
}

absl::Status AppendConverted(const Conversion& conversion, const Value& value, Budget* budget, TextBuilder* out) {
  TextBuilder converted;
  if (IsOneOf(conversion.kind, "sc")) {
    QUIRE_RETURN_IF_ERROR(AppendString(value, budget, &converted));
  } else if (conversion.kind == 'r') {
    QUIRE_RETURN_IF_ERROR(AppendRepr(value, budget, &converted));
  } else {
    QUIRE_ASSIGN_OR_RETURN(const std::string number, FormatNumber(conversion, value));
    converted.Append(number, false);
  }
  Text text = converted.Take();
  if (IsOneOf(conversion.kind, "sr") && conversion.precision >= 0) {
    text = Slice(text, 0, ByteOfCharacter(text.bytes, static_cast<size_t>(conversion.precision)));
  }
  const int missing = conversion.width - static_cast<int>(NumCharacters(text.bytes));
  const std::string padding(static_cast<size_t>(std::max(0, missing)), ' ');
  const bool is_left = conversion.has_flag('-');
  if (!is_left) out->Append(padding, false);
  out->Append(text);
  if (is_left) out->Append(padding, false);
  return budget->Build(out->size());
}

// Reads "(name)" at `*pos`, if present, and returns the value that the dictionary `values` has for it.
absl::StatusOr<std::optional<Value>> ReadName(std::string_view format, const Value& values, size_t* pos) {
  if (*pos == format.size() || format[*pos] != '(') return std::nullopt;
  const size_t end = format.find(')', *pos);
  if (end == std::string_view::npos || values.as_dict() == nullptr) {
    return InvalidArgument("%(name) needs a dictionary");
  }
  const std::string_view name = format.substr(*pos + 1, end - *pos - 1);
  const Value* found = values.as_dict()->Find(name);
  if (found == nullptr) return InvalidArgument("the dictionary has no key '", std::string(name), "'");
  *pos = end + 1;
  return *found;
}

// Returns 0 when there is no digit at `*pos`, and at most kMaxWidth + 1.
int ReadNumber(std::string_view format, size_t* pos) {
  int number = 0;
  for (; *pos < format.size() && IsOneOf(format[*pos], "0123456789"); ++*pos) {
    number = std::min(kMaxWidth + 1, number * 10 + (format[*pos] - '0'));
  }
  return number;
}

// Reads what follows the percent sign and the name. The kind may be '%'.
absl::StatusOr<Conversion> ReadConversion(std::string_view format, size_t* pos) {
  Conversion conversion;
  while (*pos < format.size() && IsOneOf(format[*pos], "-+ 0#")) conversion.flags.push_back(format[(*pos)++]);
  conversion.width = ReadNumber(format, pos);
  if (*pos < format.size() && format[*pos] == '.') {
    ++*pos;
    conversion.precision = ReadNumber(format, pos);
  }
  if (conversion.width > kMaxWidth || conversion.precision > kMaxWidth) {
    return InvalidArgument("the width of a conversion is above ", kMaxWidth);
  }
  if (*pos >= format.size()) return InvalidArgument("the format ends in the middle of a conversion");
  conversion.kind = format[*pos];
  if (!IsOneOf(conversion.kind, "%srdifegxXoc")) {
    return InvalidArgument("the conversion %", std::string(format.substr(*pos, Utf8Length(conversion.kind))),
                           " is not supported");
  }
  ++*pos;
  return conversion;
}

}  // namespace

absl::StatusOr<Value> FormatPercent(const Text& format, const Value& values, Budget* budget) {
  const List* list = values.as_list();
  const bool is_tuple = list != nullptr && list->kind == List::Kind::kTuple;
  const size_t num_arguments = is_tuple ? list->items.size() : 1;
  size_t next = 0;
  TextBuilder out;
  const std::string_view bytes = format.bytes;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t percent = bytes.find('%', pos);
    out.AppendSlice(format, pos, std::min(percent, bytes.size()));
    if (percent == std::string_view::npos) break;
    pos = percent + 1;
    QUIRE_ASSIGN_OR_RETURN(std::optional<Value> value, ReadName(bytes, values, &pos));
    QUIRE_ASSIGN_OR_RETURN(const Conversion conversion, ReadConversion(bytes, &pos));
    if (conversion.kind == '%') {
      out.AppendSlice(format, pos - 1, pos);
      continue;
    }
    if (!value.has_value()) {
      if (next >= num_arguments) return InvalidArgument("the format needs more arguments");
      value = is_tuple ? list->items[next] : values;
      ++next;
    }
    QUIRE_RETURN_IF_ERROR(AppendConverted(conversion, *value, budget, &out));
  }
  if (values.as_dict() == nullptr && next < num_arguments) {
    return InvalidArgument("the format does not use all arguments");
  }
  return Value(out.Take());
}

}  // namespace quire::jinja
