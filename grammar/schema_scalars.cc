// SPDX-License-Identifier: Apache-2.0

// Numbers and strings of schemas.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_writer.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxExcludedNumbers = 64;
constexpr int kMaxCountedRanges = 32'000;  // Of the characters of a pattern, once for each place that is counted.

// Splits rules at a number that they must not have.
std::vector<NumberRule> Without(const Decimal& number, std::vector<NumberRule> rules) {
  std::vector<NumberRule> split;
  for (NumberRule& rule : rules) {
    if (Fits(number, rule)) {
      NumberRule below = rule;
      below.AtMost(number, /*is_excluded=*/true);
      split.push_back(std::move(below));
      rule.AtLeast(number, /*is_excluded=*/true);
    }
    split.push_back(std::move(rule));
  }
  return split;
}

// The only text that a shape asks for, if the lengths that it allows make no difference.
const Shape::Text* OnlyText(const Shape& shape) {
  if (shape.texts.size() != 1 || shape.texts[0].is_negated || !shape.excluded.empty()) return nullptr;
  const Shape::Text& text = shape.texts[0];
  if (text.keyword == std::string_view("pattern")) {
    return shape.min_length == 0 && shape.max_length == kUnbounded ? &text : nullptr;
  }
  const SchemaFormat& format = *FindSchemaFormat((*text.schema)["format"].get<std::string>());
  const bool allows_all = shape.min_length <= format.min_length &&
                          (shape.max_length == kUnbounded || shape.max_length >= format.max_length);
  return allows_all ? &text : nullptr;
}

ExprId Quoted(ExprId body, SyntaxTree* tree) {
  return tree->Sequence({tree->Bytes("\""), body, tree->Bytes("\"")});
}

absl::StatusOr<CharacterDfa> StringsOfShape(const Shape& shape, const SchemaJson& place, const SchemaContext& context) {
  std::vector<std::string> excluded;
  for (const SchemaJson* value : shape.excluded) excluded.push_back(value->get<std::string>());
  absl::StatusOr<CharacterDfa> both = CharacterDfa::OfLengths(0, kUnbounded);
  if (!excluded.empty()) both = both->Intersection(CharacterDfa::Except(excluded), context.tree.character_steps());
  for (const Shape::Text& text : shape.texts) {
    QUIRE_ASSIGN_OR_RETURN(const CharacterDfa* one, context.texts.OfKeyword(*text.schema, text.keyword));
    if (both.ok())
      both = both->Intersection(text.is_negated ? one->Complement() : *one, context.tree.character_steps());
  }
  // A character whose escape has six bytes needs many states for each place where characters are counted.
  const bool has_length = shape.min_length > 0 || shape.max_length != kUnbounded;
  if (both.ok() && has_length && !shape.texts.empty()) {
    const CodePointSet long_escapes({{0, 7}, {0xB, 0xB}, {0xE, 0x1F}});
    const absl::StatusOr<CharacterDfa> plain =
        both->Intersection(CharacterDfa::OfCharacters(long_escapes.Complement()), context.tree.character_steps());
    if (plain.ok() && !plain->empty()) both = *plain;
  }
  if (both.ok() && has_length) {
    const int most = std::clamp(kMaxCountedRanges / both->num_ranges(), shape.min_length, kMaxCount);
    const int max_length = shape.max_length == kUnbounded ? kUnbounded : std::min(shape.max_length, most);
    both = both->Intersection(CharacterDfa::OfLengths(shape.min_length, max_length), context.tree.character_steps());
  }
  if (both.ok()) return both;
  return SchemaError(context.document, place, "lengths and the keyword \"",
                     shape.texts.empty() ? "enum" : shape.texts[0].keyword, "\" are joined here; ",
                     both.status().message());
}

}  // namespace

absl::StatusOr<ExprId> AddNumber(const Shape& shape, const SchemaJson& place, const SchemaContext& context) {
  const NumberRule& number = shape.number;
  const bool has_rule = number.low.has_value() || number.high.has_value() || !number.multiples_of.empty() ||
                        !number.no_multiples_of.empty();
  if (!has_rule && shape.excluded.empty()) return number.is_integer ? context.json.Integer() : context.json.Number();
  if (shape.excluded.size() > kMaxExcludedNumbers) {
    return SchemaError(context.document, place, "the keywords \"enum\" and \"const\" exclude ", shape.excluded.size(),
                       " numbers, at most ", kMaxExcludedNumbers, " are supported");
  }
  std::vector<NumberRule> rules = {number};
  for (const SchemaJson* value : shape.excluded) {
    if (const auto decimal = Decimal::Of(value->dump(), /*max_digits=*/400))
      rules = Without(*decimal, std::move(rules));
  }
  std::vector<ExprId> parts;
  for (const NumberRule& rule : rules) {
    const absl::StatusOr<ExprId> part = AddNumbers(rule, &context.tree);
    if (!part.ok()) {
      return SchemaError(context.document, place,
                         "the keyword \"multipleOf\" is not supported here: ", part.status().message());
    }
    parts.push_back(*part);
  }
  return context.tree.Choice(std::move(parts));
}

absl::StatusOr<ExprId> AddString(const Shape& shape, const SchemaJson& place, const SchemaContext& context) {
  if (shape.texts.empty() && shape.excluded.empty()) {
    const bool has_length = shape.min_length > 0 || shape.max_length != kUnbounded;
    return has_length ? context.json.StringOfLength(shape.min_length, shape.max_length) : context.json.String();
  }
  const Shape::Text* const text = OnlyText(shape);
  if (text == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const CharacterDfa dfa, StringsOfShape(shape, place, context));
    return Quoted(dfa.AddTo(RegexText::kJsonString, &context.tree), &context.tree);
  }
  const std::string value = (*text->schema)[text->keyword].get<std::string>();
  const bool is_pattern = text->keyword == std::string_view("pattern");
  const absl::StatusOr<ExprId> body =
      is_pattern ? ParseRegexSearch(value, RegexText::kJsonString, &context.tree)
                 : ParseRegex(FindSchemaFormat(value)->regex, RegexText::kJsonString, &context.tree);
  if (!body.ok()) return KeywordError(context.document, *text->schema, text->keyword, ", ", body.status().message());
  return Quoted(*body, &context.tree);
}

absl::StatusOr<CharacterDfa> StringsOf(const Goal& goal, const SchemaJson& place, const SchemaContext& context) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, context.expand(ValueType::kString, goal));
  CharacterDfa none = CharacterDfa::OfLengths(0, kUnbounded);  // What no shape has.
  for (const Shape& shape : shapes) {
    absl::StatusOr<CharacterDfa> strings = StringsOfShape(shape, place, context);
    QUIRE_RETURN_IF_ERROR(strings.status());
    if (shape.constants.has_value()) {
      std::vector<std::string> texts;
      for (const SchemaJson* value : *shape.constants) texts.push_back(value->get<std::string>());
      strings = strings->Intersection(CharacterDfa::Except(texts).Complement(), context.tree.character_steps());
    }
    if (strings.ok()) strings = none.Intersection(strings->Complement(), context.tree.character_steps());
    if (!strings.ok()) {
      return SchemaError(context.document, place,
                         "the keyword \"propertyNames\" is too large: ", strings.status().message());
    }
    none = *std::move(strings);
  }
  return none.Complement();
}

}  // namespace quire::grammar
