// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/percent_format.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/jinja/access.h"

namespace quire::jinja {
namespace {

// One conversion such as "%-5.2f".
struct Conversion {
  std::string flags;
  int width = -1;
  int precision = -1;
  char kind = 's';
};

absl::Status AppendConverted(const Conversion& conversion, const Value& value, Budget* budget, TextBuilder* out) {
  TextBuilder converted;
  if (conversion.kind == 's' || conversion.kind == 'c') {
    QUIRE_RETURN_IF_ERROR(AppendString(value, budget, &converted));
  } else if (conversion.kind == 'r') {
    QUIRE_RETURN_IF_ERROR(AppendRepr(value, budget, &converted));
  } else {
    double number = 0;
    int64_t integer = 0;
    if (!value.GetNumber(&number)) {
      return InvalidArgument("%", std::string(1, conversion.kind), " needs a number, not a value of type ",
                             std::string(value.type_name()));
    }
    const bool is_integral = std::string_view("dixXo").find(conversion.kind) != std::string_view::npos;
    if (is_integral && !value.GetInteger(&integer)) {
      if (!(number > -9e18 && number < 9e18)) return InvalidArgument("a number is too large");
      integer = static_cast<int64_t>(number);
    }
    const std::string flags = conversion.flags;
    const int precision = conversion.precision;
    std::string digits;
    switch (conversion.kind) {
      case 'x':
        digits = absl::StrFormat("%x", integer < 0 ? -static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer));
        break;
      case 'X':
        digits = absl::StrFormat("%X", integer < 0 ? -static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer));
        break;
      case 'o':
        digits = absl::StrFormat("%o", integer < 0 ? -static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer));
        break;
      case 'f':
        digits = absl::StrFormat("%.*f", precision < 0 ? 6 : precision, number);
        break;
      case 'e':
        digits = absl::StrFormat("%.*e", precision < 0 ? 6 : precision, number);
        break;
      case 'g':
        digits = absl::StrFormat("%.*g", precision < 0 ? 6 : precision, number);
        break;
      default:
        digits = absl::StrCat(integer);
        break;
    }
    const bool is_unsigned_text = conversion.kind == 'x' || conversion.kind == 'X' || conversion.kind == 'o';
    if (is_unsigned_text && integer < 0) digits.insert(0, "-");
    if (flags.find('+') != std::string::npos && digits.front() != '-') digits.insert(0, "+");
    if (flags.find('0') != std::string::npos && flags.find('-') == std::string::npos) {
      const size_t sign = digits.front() == '-' || digits.front() == '+' ? 1 : 0;
      while (static_cast<int>(digits.size()) < conversion.width) digits.insert(sign, "0");
    }
    converted.Append(digits, false);
  }
  Text text = converted.Take();
  const bool is_text = conversion.kind == 's' || conversion.kind == 'r';
  if (is_text && conversion.precision >= 0) {
    text = Slice(text, 0, ByteOfCharacter(text.bytes, static_cast<size_t>(conversion.precision)));
  }
  const int missing = conversion.width - static_cast<int>(NumCharacters(text.bytes));
  const std::string padding(static_cast<size_t>(std::max(0, missing)), ' ');
  const bool is_left = conversion.flags.find('-') != std::string::npos;
  if (!is_left) out->Append(padding, false);
  out->Append(text);
  if (is_left) out->Append(padding, false);
  return budget->Build(out->size());
}

}  // namespace

absl::StatusOr<Value> FormatPercent(const Text& format, const Value& values, Budget* budget) {
  const List* list = values.as_list();
  const bool is_tuple = list != nullptr && list->kind == List::Kind::kTuple;
  size_t next = 0;
  TextBuilder out;
  const std::string_view bytes = format.bytes;
  constexpr int kMaxWidth = 1000;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t percent = bytes.find('%', pos);
    out.AppendSlice(format, pos, std::min(percent, bytes.size()));
    if (percent == std::string_view::npos) break;
    pos = percent + 1;
    Conversion conversion;
    Value named;
    bool is_named = false;
    if (pos < bytes.size() && bytes[pos] == '(') {
      const size_t end = bytes.find(')', pos);
      if (end == std::string_view::npos || values.as_dict() == nullptr) {
        return InvalidArgument("%(name) needs a dictionary");
      }
      const Value* found = values.as_dict()->Find(bytes.substr(pos + 1, end - pos - 1));
      if (found == nullptr) {
        return InvalidArgument("the dictionary has no key '", std::string(bytes.substr(pos + 1, end - pos - 1)), "'");
      }
      named = *found;
      is_named = true;
      pos = end + 1;
    }
    while (pos < bytes.size() && std::string_view("-+ 0#").find(bytes[pos]) != std::string_view::npos) {
      conversion.flags.push_back(bytes[pos++]);
    }
    const auto read_number = [&] {
      int number = 0;
      while (pos < bytes.size() && bytes[pos] >= '0' && bytes[pos] <= '9') {
        number = std::min(kMaxWidth + 1, number * 10 + (bytes[pos++] - '0'));
      }
      return number;
    };
    conversion.width = read_number();
    if (pos < bytes.size() && bytes[pos] == '.') {
      ++pos;
      conversion.precision = read_number();
    }
    if (conversion.width > kMaxWidth || conversion.precision > kMaxWidth) {
      return InvalidArgument("the width of a conversion is above ", kMaxWidth);
    }
    if (pos >= bytes.size()) return InvalidArgument("the format ends in the middle of a conversion");
    conversion.kind = bytes[pos++];
    if (conversion.kind == '%') {
      out.AppendSlice(format, pos - 1, pos);
      continue;
    }
    if (std::string_view("srdifegxXoc").find(conversion.kind) == std::string_view::npos) {
      return InvalidArgument("the conversion %", std::string(bytes.substr(pos - 1, Utf8Length(bytes[pos - 1]))),
                             " is not supported");
    }
    Value value = named;
    if (!is_named) {
      if (next >= (is_tuple ? list->items.size() : 1)) return InvalidArgument("the format needs more arguments");
      value = is_tuple ? list->items[next] : values;
      ++next;
    }
    QUIRE_RETURN_IF_ERROR(AppendConverted(conversion, value, budget, &out));
  }
  if (values.as_dict() == nullptr && next < (is_tuple ? list->items.size() : 1)) {
    return InvalidArgument("the format does not use all arguments");
  }
  return Value(out.Take());
}

}  // namespace quire::jinja
