// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/methods.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "base/status.h"
#include "kv_manager/jinja/access.h"

namespace quire::jinja {
namespace {

using OrValue = absl::StatusOr<Value>;
using Bound = std::vector<std::optional<Value>>;
using TextMethod = OrValue (*)(const Text& self, const Arguments& arguments, Budget* budget);

absl::StatusOr<const Text*> TextArgument(const std::optional<Value>& argument, std::string_view name) {
  if (!argument.has_value()) return InvalidArgument("needs the argument \"", std::string(name), "\"");
  if (argument->as_text() == nullptr) {
    return InvalidArgument("argument \"", std::string(name), "\" must be a string, not a value of type ",
                           std::string(argument->type_name()));
  }
  return argument->as_text();
}

// `otherwise` when the argument is missing or none.
absl::StatusOr<int64_t> IntegerArgument(const std::optional<Value>& argument, std::string_view name,
                                        int64_t otherwise) {
  if (!argument.has_value() || argument->is_none()) return otherwise;
  int64_t value = 0;
  if (argument->GetInteger(&value)) return value;
  return InvalidArgument("argument \"", std::string(name), "\" must be an integer, not a value of type ",
                         std::string(argument->type_name()));
}

OrValue StripMethod(const Text& self, const Arguments& arguments, bool left, bool right) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"chars"}));
  std::string_view chars;
  const bool has_chars = bound[0].has_value() && !bound[0]->is_none();
  if (has_chars) {
    QUIRE_ASSIGN_OR_RETURN(const Text* text, TextArgument(bound[0], "chars"));
    chars = text->bytes;
  }
  const Range range = Strip(self.bytes, has_chars ? &chars : nullptr, left, right);
  return Value(Slice(self, range.begin, range.end));
}

OrValue SplitMethod(const Text& self, const Arguments& arguments, Budget* budget, bool from_right) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"sep", "maxsplit"}));
  QUIRE_ASSIGN_OR_RETURN(const int64_t max_splits, IntegerArgument(bound[1], "maxsplit", -1));
  std::string_view separator;
  const bool has_separator = bound[0].has_value() && !bound[0]->is_none();
  if (has_separator) {
    QUIRE_ASSIGN_OR_RETURN(const Text* text, TextArgument(bound[0], "sep"));
    separator = text->bytes;
    if (separator.empty()) return InvalidArgument("the separator is empty");
  }
  std::vector<Value> pieces;
  const std::vector<Range> ranges = Split(self.bytes, has_separator ? &separator : nullptr, max_splits, from_right);
  QUIRE_RETURN_IF_ERROR(budget->BuildList(4 * ranges.size()));
  for (const Range& range : ranges) pieces.push_back(Value(Slice(self, range.begin, range.end)));
  return Value::MakeList(std::move(pieces));
}

OrValue PartitionMethod(const Text& self, const Arguments& arguments, bool from_right) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"sep"}));
  QUIRE_ASSIGN_OR_RETURN(const Text* separator, TextArgument(bound[0], "sep"));
  if (separator->bytes.empty()) return InvalidArgument("the separator is empty");
  const size_t found = from_right ? FindLast(self.bytes, separator->bytes) : Find(self.bytes, separator->bytes);
  const size_t size = self.bytes.size();
  size_t begin = found;
  size_t end = found + separator->bytes.size();
  if (found == std::string::npos) begin = end = from_right ? 0 : size;
  return Value::MakeTuple(
      {Value(Slice(self, 0, begin)), Value(Slice(self, begin, end)), Value(Slice(self, end, size))});
}

// The affixes are one string or a tuple of them.
OrValue HasAffix(const Text& self, const Arguments& arguments, bool at_end) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"affix"}));
  if (!bound[0].has_value()) return InvalidArgument("needs an argument");
  const auto matches = [&](const Text& affix) {
    return at_end ? self.bytes.ends_with(affix.bytes) : self.bytes.starts_with(affix.bytes);
  };
  if (bound[0]->as_text() != nullptr) return Value(matches(*bound[0]->as_text()));
  const List* list = bound[0]->as_list();
  if (list == nullptr || list->kind != List::Kind::kTuple) {
    return InvalidArgument("needs a string or a tuple of strings, not a value of type ",
                           std::string(bound[0]->type_name()));
  }
  for (const Value& affix : list->items) {
    if (affix.as_text() == nullptr) return InvalidArgument("needs a tuple of strings");
    if (matches(*affix.as_text())) return Value(true);
  }
  return Value(false);
}

OrValue RemoveAffix(const Text& self, const Arguments& arguments, bool at_end) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"affix"}));
  QUIRE_ASSIGN_OR_RETURN(const Text* affix, TextArgument(bound[0], "affix"));
  const size_t size = self.bytes.size();
  if (at_end && self.bytes.ends_with(affix->bytes)) return Value(Slice(self, 0, size - affix->bytes.size()));
  if (!at_end && self.bytes.starts_with(affix->bytes)) return Value(Slice(self, affix->bytes.size(), size));
  return Value(self);
}

OrValue ReplaceMethod(const Text& self, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"old", "new", "count"}));
  QUIRE_ASSIGN_OR_RETURN(const Text* from, TextArgument(bound[0], "old"));
  QUIRE_ASSIGN_OR_RETURN(const Text* to, TextArgument(bound[1], "new"));
  QUIRE_ASSIGN_OR_RETURN(const int64_t count, IntegerArgument(bound[2], "count", -1));
  // The result cannot be longer than if the shortest possible `from` were replaced everywhere.
  const size_t most = self.bytes.size() / std::max<size_t>(1, from->bytes.size()) + 1;
  const size_t limit = budget->limits().max_output_bytes;
  if (to->bytes.size() > 0 && most > 2 * limit / to->bytes.size()) {
    size_t found = 0;
    for (size_t at = Find(self.bytes, from->bytes); at != std::string::npos && !from->bytes.empty();
         at = Find(self.bytes, from->bytes, at + from->bytes.size())) {
      ++found;
    }
    if (from->bytes.empty()) found = most;
    QUIRE_RETURN_IF_ERROR(budget->Build(found > 2 * limit / to->bytes.size() ? limit + 1 : 0));
  }
  Text replaced = Replace(self, *from, *to, count);
  QUIRE_RETURN_IF_ERROR(budget->Build(replaced.bytes.size()));
  return Value(std::move(replaced));
}

OrValue FindMethod(const Text& self, const Arguments& arguments, bool from_right, bool must_exist) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"sub", "start"}));
  QUIRE_ASSIGN_OR_RETURN(const Text* part, TextArgument(bound[0], "sub"));
  QUIRE_ASSIGN_OR_RETURN(int64_t start, IntegerArgument(bound[1], "start", 0));
  if (start < 0) start = std::max<int64_t>(0, start + static_cast<int64_t>(NumCharacters(self.bytes)));
  const size_t begin = ByteOfCharacter(self.bytes, static_cast<size_t>(start));
  size_t found = from_right ? FindLast(self.bytes, part->bytes) : Find(self.bytes, part->bytes, begin);
  if (found != std::string::npos && found < begin) found = std::string::npos;
  if (found != std::string::npos) {
    return Value(static_cast<int64_t>(NumCharacters(std::string_view(self.bytes).substr(0, found))));
  }
  if (must_exist) return InvalidArgument("the substring is not found");
  return Value(int64_t{-1});
}

OrValue CountMethod(const Text& self, const Arguments& arguments, Budget*) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"sub"}));
  QUIRE_ASSIGN_OR_RETURN(const Text* part, TextArgument(bound[0], "sub"));
  if (part->bytes.empty()) return Value(static_cast<int64_t>(NumCharacters(self.bytes)) + 1);
  int64_t count = 0;
  for (size_t at = Find(self.bytes, part->bytes); at != std::string::npos;
       at = Find(self.bytes, part->bytes, at + part->bytes.size())) {
    ++count;
  }
  return Value(count);
}

OrValue JoinMethod(const Text& self, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"iterable"}));
  if (!bound[0].has_value()) return InvalidArgument("needs an argument");
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(*bound[0], budget));
  TextBuilder out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].as_text() == nullptr) {
      return InvalidArgument("element ", i, " must be a string, not a value of type ",
                             std::string(items[i].type_name()));
    }
    if (i > 0) out.Append(self);
    QUIRE_RETURN_IF_ERROR(AppendString(items[i], budget, &out));
  }
  return Value(out.Take());
}

enum class Align { kLeft, kRight, kCenter, kZeros };

OrValue PadMethod(const Text& self, const Arguments& arguments, Budget* budget, Align align) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"width", "fillchar"}));
  QUIRE_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(bound[0], "width", 0));
  Text fill;
  fill.bytes = align == Align::kZeros ? "0" : " ";
  if (bound[1].has_value()) {
    QUIRE_ASSIGN_OR_RETURN(const Text* given, TextArgument(bound[1], "fillchar"));
    fill = *given;
    if (const size_t num_characters = NumCharacters(fill.bytes); num_characters != 1) {
      return InvalidArgument("the fill character must be one character, not ", num_characters);
    }
  }
  const auto length = static_cast<int64_t>(NumCharacters(self.bytes));
  const int64_t missing = std::max<int64_t>(0, width - length);
  QUIRE_RETURN_IF_ERROR(budget->Build(static_cast<size_t>(missing) + self.bytes.size()));
  int64_t left = 0;
  if (align == Align::kRight || align == Align::kZeros) left = missing;
  // Python puts the odd place on the left when the width is odd.
  if (align == Align::kCenter) left = missing / 2 + (missing & width & 1);
  TextBuilder out;
  size_t sign = 0;
  if (align == Align::kZeros && missing > 0 && !self.bytes.empty() && (self.bytes[0] == '-' || self.bytes[0] == '+')) {
    sign = 1;
  }
  out.AppendSlice(self, 0, sign);
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.AppendSlice(self, sign, self.bytes.size());
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return Value(out.Take());
}

// "{} {0} {name.attribute}".format(...) without format specifications.
OrValue FormatMethod(const Text& self, const Arguments& arguments, Budget* budget) {
  TextBuilder out;
  size_t next = 0;
  const std::string_view bytes = self.bytes;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t brace = bytes.find_first_of("{}", pos);
    out.AppendSlice(self, pos, std::min(brace, bytes.size()));
    if (brace == std::string_view::npos) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.AppendSlice(self, brace, brace + 1);
      pos = brace + 2;
      continue;
    }
    const size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string_view::npos) return InvalidArgument("a brace is not closed");
    std::string_view field = bytes.substr(brace + 1, end - brace - 1);
    if (field.find_first_of(":!{[") != std::string_view::npos) {
      return InvalidArgument("the field {", std::string(field), "} is not supported");
    }
    const size_t dot = field.find('.');
    const std::string_view name = field.substr(0, dot);
    Value value = Value::MakeUndefined("an argument is missing");
    uint32_t index = 0;
    const bool is_number = absl::SimpleAtoi(std::string(name), &index);
    if (name.empty() || is_number) {
      const size_t at = is_number ? index : next++;
      if (at >= arguments.positional.size()) return InvalidArgument("there is no argument ", at);
      value = arguments.positional[at];
    } else {
      const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                      [&](const auto& named) { return named.first.bytes == name; });
      if (found == arguments.named.end()) return InvalidArgument("there is no argument \"", std::string(name), "\"");
      value = found->second;
    }
    if (dot != std::string_view::npos) {
      QUIRE_ASSIGN_OR_RETURN(value, GetPath(value, Value(field.substr(dot + 1))));
    }
    QUIRE_RETURN_IF_ERROR(AppendString(value, budget, &out));
    pos = end + 1;
  }
  return Value(out.Take());
}

OrValue SplitLinesMethod(const Text& self, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"keepends"}));
  const bool keeps_ends = bound[0].has_value() && bound[0]->IsTrue();
  const std::vector<Range> lines = SplitLines(self.bytes);
  QUIRE_RETURN_IF_ERROR(budget->BuildList(4 * lines.size()));
  std::vector<Value> values;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t next = i + 1 < lines.size() ? lines[i + 1].begin : self.bytes.size();
    values.push_back(Value(Slice(self, lines[i].begin, keeps_ends ? next : lines[i].end)));
  }
  return Value::MakeList(std::move(values));
}

template <Text (*Change)(const Text&)>
OrValue Changed(const Text& self, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_RETURN_IF_ERROR(budget->Build(self.bytes.size()));
  return Value(Change(self));
}

template <CharacterClass which>
OrValue IsMethod(const Text& self, const Arguments& arguments, Budget*) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  return Value(Is(which, self.bytes));
}

const absl::flat_hash_map<std::string_view, TextMethod>& TextMethods() {
  static const auto* methods = new absl::flat_hash_map<std::string_view, TextMethod>{
      {"strip", [](const Text& self, const Arguments& a, Budget*) { return StripMethod(self, a, true, true); }},
      {"lstrip", [](const Text& self, const Arguments& a, Budget*) { return StripMethod(self, a, true, false); }},
      {"rstrip", [](const Text& self, const Arguments& a, Budget*) { return StripMethod(self, a, false, true); }},
      {"split", [](const Text& self, const Arguments& a, Budget* b) { return SplitMethod(self, a, b, false); }},
      {"rsplit", [](const Text& self, const Arguments& a, Budget* b) { return SplitMethod(self, a, b, true); }},
      {"splitlines", SplitLinesMethod},
      {"partition", [](const Text& self, const Arguments& a, Budget*) { return PartitionMethod(self, a, false); }},
      {"rpartition", [](const Text& self, const Arguments& a, Budget*) { return PartitionMethod(self, a, true); }},
      {"startswith", [](const Text& self, const Arguments& a, Budget*) { return HasAffix(self, a, false); }},
      {"endswith", [](const Text& self, const Arguments& a, Budget*) { return HasAffix(self, a, true); }},
      {"removeprefix", [](const Text& self, const Arguments& a, Budget*) { return RemoveAffix(self, a, false); }},
      {"removesuffix", [](const Text& self, const Arguments& a, Budget*) { return RemoveAffix(self, a, true); }},
      {"replace", ReplaceMethod},
      {"find", [](const Text& self, const Arguments& a, Budget*) { return FindMethod(self, a, false, false); }},
      {"rfind", [](const Text& self, const Arguments& a, Budget*) { return FindMethod(self, a, true, false); }},
      {"index", [](const Text& self, const Arguments& a, Budget*) { return FindMethod(self, a, false, true); }},
      {"rindex", [](const Text& self, const Arguments& a, Budget*) { return FindMethod(self, a, true, true); }},
      {"count", CountMethod},
      {"join", JoinMethod},
      {"format", FormatMethod},
      {"ljust", [](const Text& self, const Arguments& a, Budget* b) { return PadMethod(self, a, b, Align::kLeft); }},
      {"rjust", [](const Text& self, const Arguments& a, Budget* b) { return PadMethod(self, a, b, Align::kRight); }},
      {"center", [](const Text& self, const Arguments& a, Budget* b) { return PadMethod(self, a, b, Align::kCenter); }},
      {"zfill", [](const Text& self, const Arguments& a, Budget* b) { return PadMethod(self, a, b, Align::kZeros); }},
      {"upper", Changed<ToUpper>},
      {"lower", Changed<ToLower>},
      {"capitalize", Changed<Capitalize>},
      {"title", Changed<TitleMethod>},
      {"swapcase", Changed<SwapCase>},
      {"isalpha", IsMethod<CharacterClass::kAlpha>},
      {"isdigit", IsMethod<CharacterClass::kDigit>},
      {"isdecimal", IsMethod<CharacterClass::kDecimal>},
      {"isalnum", IsMethod<CharacterClass::kAlnum>},
      {"isspace", IsMethod<CharacterClass::kSpace>},
      {"isupper", IsMethod<CharacterClass::kUpper>},
      {"islower", IsMethod<CharacterClass::kLower>},
  };
  return *methods;
}

OrValue CallDictMethod(const Dict& self, std::string_view name, const Arguments& arguments, Budget* budget) {
  if (name == "get") {
    QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"key", "default"}));
    if (!bound[0].has_value()) return InvalidArgument("needs a key");
    const Value* found = self.Find(*bound[0]);
    return found != nullptr ? *found : bound[1].value_or(Value(None{}));
  }
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_RETURN_IF_ERROR(budget->BuildList(self.entries.size()));
  if (name == "copy") return Value(std::make_shared<const Dict>(self));
  std::vector<Value> items;
  for (const auto& [key, value] : self.entries) {
    items.push_back(name == "items" ? Value::MakeTuple({key, value}) : name == "keys" ? key : value);
  }
  return Value::MakeList(std::move(items));
}

OrValue CallListMethod(const List& self, std::string_view name, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"value"}));
  if (name == "copy") return Value::MakeList(self.items);
  if (!bound[0].has_value()) return InvalidArgument("needs an argument");
  int64_t count = 0;
  for (size_t i = 0; i < self.items.size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(self.items[i], *bound[0], budget));
    if (is_equal && name == "index") return Value(static_cast<int64_t>(i));
    if (is_equal) ++count;
  }
  if (name == "index") return InvalidArgument("the value is not in the list");
  return Value(count);
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) {
  if (value.as_text() != nullptr) return TextMethods().contains(name);
  if (value.as_dict() != nullptr) {
    return name == "get" || name == "items" || name == "keys" || name == "values" || name == "copy";
  }
  const List* list = value.as_list();
  if (list == nullptr || list->kind == List::Kind::kGenerator) return false;
  return name == "index" || name == "count" || (name == "copy" && list->kind == List::Kind::kList);
}

absl::StatusOr<Value> CallMethod(const Value& self, std::string_view name, const Arguments& arguments, Budget* budget) {
  if (const Text* text = self.as_text()) {
    QUIRE_RETURN_IF_ERROR(budget->Step(1 + static_cast<int64_t>(text->bytes.size() / 64)));
    return TextMethods().at(name)(*text, arguments, budget);
  }
  if (const Dict* dict = self.as_dict()) return CallDictMethod(*dict, name, arguments, budget);
  return CallListMethod(*self.as_list(), name, arguments, budget);
}

}  // namespace quire::jinja
