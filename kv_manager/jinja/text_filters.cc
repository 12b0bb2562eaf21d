// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/text_filters.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/jinja/access.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/methods.h"
#include "kv_manager/jinja/percent_format.h"

namespace quire::jinja {
namespace {

using OrValue = absl::StatusOr<Value>;
using Bound = std::vector<std::optional<Value>>;

// Applies a method of strings to the value's text.
OrValue TextFilter(const Value& value, std::string_view method, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(Text text, ToText(value, budget));
  return CallMethod(Value(std::move(text)), method, arguments, budget);
}

OrValue TrimFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  return TextFilter(value, "strip", arguments, budget);
}
OrValue UpperFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  return TextFilter(value, "upper", arguments, budget);
}
OrValue LowerFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  return TextFilter(value, "lower", arguments, budget);
}
OrValue CapitalizeFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  return TextFilter(value, "capitalize", arguments, budget);
}
OrValue ReplaceFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  return TextFilter(value, "replace", arguments, budget);
}

OrValue CenterFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"width"}));
  Arguments width;
  width.positional.push_back(bound[0].value_or(Value(int64_t{80})));
  return TextFilter(value, "center", width, budget);
}

OrValue TitleFilterOf(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_ASSIGN_OR_RETURN(const Text text, ToText(value, budget));
  QUIRE_RETURN_IF_ERROR(budget->Build(text.bytes.size()));
  return Value(TitleFilter(text));
}

OrValue FormatFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Text text, ToText(value, budget));
  if (arguments.named.empty()) return FormatPercent(text, Value::MakeTuple(arguments.positional), budget);
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, argument] : arguments.named) {
    QUIRE_RETURN_IF_ERROR(dict->Set(Value(name), argument));
  }
  return FormatPercent(text, Value(std::shared_ptr<const Dict>(std::move(dict))), budget);
}

OrValue IndentFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"width", "first", "blank"}));
  Text indent;
  if (bound[0].has_value() && bound[0]->as_text() != nullptr) {
    indent = *bound[0]->as_text();
  } else {
    QUIRE_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[0], 4));
    if (width > 1000) return InvalidArgument("the width ", width, " is above 1000");
    indent.bytes = std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  const bool indents_first = BoolOr(bound[1], false);
  const bool indents_blank = BoolOr(bound[2], false);
  QUIRE_ASSIGN_OR_RETURN(Text text, ToText(value, budget));
  TextBuilder with_end;
  with_end.Append(text);
  with_end.Append("\n", false);
  text = with_end.Take();
  const std::vector<Range> lines = SplitLines(text.bytes);
  QUIRE_RETURN_IF_ERROR(budget->Build(text.bytes.size() + lines.size() * indent.bytes.size()));
  TextBuilder out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", false);
    const bool is_blank = lines[i].begin == lines[i].end;
    if (i == 0 ? indents_first : indents_blank || !is_blank) out.Append(indent);
    out.AppendSlice(text, lines[i].begin, lines[i].end);
  }
  return Value(out.Take());
}

OrValue SafeFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_ASSIGN_OR_RETURN(Text text, ToText(value, budget));
  text.is_markup = true;
  return Value(std::move(text));
}

OrValue EscapeFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_ASSIGN_OR_RETURN(Text text, ToText(value, budget));
  if (text.is_markup) return Value(std::move(text));
  QUIRE_RETURN_IF_ERROR(budget->Build(5 * text.bytes.size() <= budget->limits().max_output_bytes
                                          ? 5 * text.bytes.size()
                                          : EscapeHtml(text).bytes.size()));
  return Value(EscapeHtml(text));
}

OrValue WordCountFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_ASSIGN_OR_RETURN(const Text text, ToText(value, budget));
  int64_t count = 0;
  bool is_in_word = false;
  for (size_t pos = 0; pos < text.bytes.size();) {
    const size_t begin = pos;
    const char32_t c = DecodeUtf8(text.bytes, &pos);
    const bool is_word =
        c == '_' || Is(CharacterClass::kAlnum, std::string_view(text.bytes).substr(begin, pos - begin));
    if (is_word && !is_in_word) ++count;
    is_in_word = is_word;
  }
  return Value(count);
}

}  // namespace

Filter FindTextFilter(std::string_view name) {
  static const auto* filters = new absl::flat_hash_map<std::string_view, Filter>{
      {"capitalize", CapitalizeFilter}, {"center", CenterFilter},   {"e", EscapeFilter},
      {"escape", EscapeFilter},         {"format", FormatFilter},   {"indent", IndentFilter},
      {"lower", LowerFilter},           {"replace", ReplaceFilter}, {"safe", SafeFilter},
      {"title", TitleFilterOf},         {"trim", TrimFilter},       {"upper", UpperFilter},
      {"wordcount", WordCountFilter},
  };
  const auto found = filters->find(name);
  return found == filters->end() ? nullptr : found->second;
}

}  // namespace quire::jinja
