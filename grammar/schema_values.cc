// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/number_text.h"
#include "grammar/schema_keywords.h"

namespace quire::grammar {
namespace {

constexpr int kMaxReferences = 16;
constexpr int kMaxLevels = 200;
constexpr size_t kMaxComparedConstants = 100;
constexpr size_t kMaxComparisons = 1'000'000;  // Of the constants of two schemas.

// The value of a number that is an integer of at most about 66 bits.
std::optional<absl::int128> IntegerOf(const SchemaJson& number) {
  if (number.is_number_unsigned()) return number.get<uint64_t>();
  if (number.is_number_integer()) return number.get<int64_t>();
  const double value = number.get<double>();
  if (std::trunc(value) != value || std::abs(value) > 1e20) return std::nullopt;
  return static_cast<absl::int128>(value);
}

// Tests one value after the other against schemas.
class ValueTester {
 public:
  ValueTester(const SchemaDocument& document, SchemaTexts* texts) : document_(document), texts_(*texts) {}

  absl::StatusOr<bool> Fits(const SchemaJson& value, const SchemaJson& schema) {
    if (level_ > kMaxLevels || !texts_.CountTest()) {
      return SchemaError(document_, schema,
                         "constants of the keywords \"enum\" and \"const\", or names, need schemas in ", "more than ",
                         kMaxLevels, " levels, or more than ", kMaxTests, " tests");
    }
    QUIRE_RETURN_IF_ERROR(CheckKeywords(document_, schema));
    if (schema.is_boolean()) return schema.get<bool>();
    ++level_;
    const absl::StatusOr<bool> fits = FitsKeywords(value, schema);
    --level_;
    return fits;
  }

 private:
  absl::StatusOr<bool> FitsKeywords(const SchemaJson& value, const SchemaJson& schema) {
    const bool has_reference_only = schema.contains("$ref") && document_.ignores_siblings_of_ref();
    for (const auto& [keyword, argument] : schema.items()) {
      if (IsAnnotation(keyword) || (has_reference_only && keyword != "$ref")) continue;
      const std::optional<ValueType> type = TypeOfKeyword(keyword);
      if (type.has_value() && *type != TypeOf(value)) continue;
      QUIRE_ASSIGN_OR_RETURN(const bool fits, type.has_value() ? FitsFacet(value, schema, keyword, *type)
                                                               : FitsJoined(value, schema, keyword));
      if (!fits) return false;
    }
    return true;
  }

  absl::StatusOr<int> NumFitting(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword) {
    QUIRE_RETURN_IF_ERROR(CheckList(document_, schema, keyword));
    int count = 0;
    for (const SchemaJson& member : schema[keyword]) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(value, member));
      count += fits;
    }
    return count;
  }

  absl::StatusOr<bool> FitsJoined(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword) {
    const SchemaJson& argument = schema[keyword];
    if (keyword == "type") {
      QUIRE_ASSIGN_OR_RETURN(const TypeSet types, TypesOf(document_, schema));
      if (!types.Has(TypeOf(value))) return false;
      return !(value.is_number() && types.has_integers_only) || IsInteger(value);
    }
    if (keyword == "const") return AreEqual(value, argument);
    if (keyword == "enum") {
      // A value of the list itself need not be looked for.
      const bool is_listed = !argument.empty() && std::less_equal<>()(&argument.front(), &value) &&
                             std::less_equal<>()(&value, &argument.back());
      return is_listed ||
             std::any_of(argument.begin(), argument.end(), [&](const SchemaJson& one) { return AreEqual(value, one); });
    }
    if (keyword == "$ref" || keyword == "$dynamicRef") {
      QUIRE_ASSIGN_OR_RETURN(const SchemaJson* target, document_.Resolve(schema, keyword));
      return Fits(value, *target);
    }
    if (keyword == "not") {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(value, argument));
      return !fits;
    }
    if (keyword == "if") {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(value, argument));
      const char* const next = fits ? "then" : "else";
      return schema.contains(next) ? Fits(value, schema[next]) : true;
    }
    if (keyword != "allOf" && keyword != "anyOf" && keyword != "oneOf") return true;
    QUIRE_ASSIGN_OR_RETURN(const int count, NumFitting(value, schema, keyword));
    if (keyword == "allOf") return count == static_cast<int>(argument.size());
    return keyword == "anyOf" ? count > 0 : count == 1;
  }

  // In draft 4, an integer has no point.
  bool IsInteger(const SchemaJson& value) const {
    if (!value.is_number_float()) return true;
    return !document_.is_of_draft_4() && std::trunc(value.get<double>()) == value.get<double>();
  }

  absl::StatusOr<bool> FitsFacet(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword,
                                 ValueType type) {
    if (type == ValueType::kNumber) return FitsNumber(value, schema, keyword);
    if (type == ValueType::kString) return FitsString(value.get<std::string>(), schema, keyword);
    return type == ValueType::kArray ? FitsArray(value, schema, keyword) : FitsObject(value, schema, keyword);
  }

  absl::StatusOr<bool> FitsNumber(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword) {
    NumberRule rule;
    if (keyword == "multipleOf") {
      QUIRE_ASSIGN_OR_RETURN(const Decimal factor, DecimalOf(document_, schema, keyword));
      rule.multiples_of = {factor};
    } else {
      QUIRE_ASSIGN_OR_RETURN(const std::optional<Bound> bound, BoundOf(document_, schema, keyword));
      if (!bound.has_value()) return true;
      if (bound->is_upper) rule.AtMost(bound->number, bound->is_excluded);
      if (!bound->is_upper) rule.AtLeast(bound->number, bound->is_excluded);
    }
    return quire::grammar::Fits(*Decimal::Of(value.dump(), /*max_digits=*/400), rule);
  }

  absl::StatusOr<bool> FitsString(const std::string& text, const SchemaJson& schema, const std::string& keyword) {
    if (keyword == "format") return true;
    if (keyword == "pattern") {
      QUIRE_RETURN_IF_ERROR(TextOf(document_, schema, keyword).status());
      QUIRE_ASSIGN_OR_RETURN(const CharacterDfa* dfa, texts_.OfKeyword(schema, keyword));
      return dfa->Matches(text);
    }
    return HasCount(NumCodePoints(text), schema, keyword, /*is_least=*/keyword == "minLength");
  }

  absl::StatusOr<bool> HasCount(size_t count, const SchemaJson& schema, const std::string& keyword, bool is_least) {
    QUIRE_ASSIGN_OR_RETURN(const int bound, CountOf(document_, schema, keyword));
    return is_least ? count >= static_cast<size_t>(bound) : count <= static_cast<size_t>(bound);
  }

  absl::Status CannotTest(const SchemaJson& schema, const std::string& keyword) const {
    return KeywordError(document_, schema, keyword, ", and to test a constant with it is not supported");
  }

  absl::StatusOr<bool> FitsArray(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword) {
    if (keyword == "unevaluatedItems") return CannotTest(schema, keyword);
    const SchemaJson& argument = schema[keyword];
    if (keyword == "minItems" || keyword == "maxItems") {
      return HasCount(value.size(), schema, keyword, /*is_least=*/keyword == "minItems");
    }
    if (keyword == "uniqueItems") {
      for (size_t i = 0; argument == true && i < value.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
          if (AreEqual(value[i], value[k])) return false;
        }
      }
      return true;
    }
    if (keyword == "contains") return FitsContains(value, schema);
    if (keyword == "minContains" || keyword == "maxContains") return true;
    if (argument.is_array()) return FitsPrefix(value, argument);
    size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    if (keyword == "additionalItems") {
      if (!schema.contains("items") || !schema["items"].is_array()) return true;
      first = schema["items"].size();
    }
    for (size_t i = first; i < value.size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(value[i], argument));
      if (!fits) return false;
    }
    return true;
  }

  absl::StatusOr<bool> FitsPrefix(const SchemaJson& value, const SchemaJson& prefix) {
    for (size_t i = 0; i < std::min(value.size(), prefix.size()); ++i) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(value[i], prefix[i]));
      if (!fits) return false;
    }
    return true;
  }

  absl::StatusOr<bool> FitsContains(const SchemaJson& value, const SchemaJson& schema) {
    size_t count = 0;
    for (const SchemaJson& item : value) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(item, schema["contains"]));
      count += fits;
    }
    bool fits = count > 0;
    if (schema.contains("minContains")) {
      QUIRE_ASSIGN_OR_RETURN(fits, HasCount(count, schema, "minContains", /*is_least=*/true));
    }
    if (!fits || !schema.contains("maxContains")) return fits;
    return HasCount(count, schema, "maxContains", /*is_least=*/false);
  }

  absl::StatusOr<bool> FitsObject(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword) {
    if (keyword == "unevaluatedProperties") return CannotTest(schema, keyword);
    if (keyword == "minProperties" || keyword == "maxProperties") {
      return HasCount(value.size(), schema, keyword, /*is_least=*/keyword == "minProperties");
    }
    if (keyword == "required") {
      QUIRE_RETURN_IF_ERROR(CheckNames(document_, schema, keyword, schema[keyword]));
      return HasAll(value, schema[keyword]);
    }
    if (keyword == "dependentRequired" || keyword == "dependentSchemas" || keyword == "dependencies") {
      return FitsDependencies(value, schema, keyword);
    }
    for (const auto& [name, member] : value.items()) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, FitsMember(name, member, schema, keyword));
      if (!fits) return false;
    }
    return true;
  }

  static bool HasAll(const SchemaJson& value, const SchemaJson& names) {
    return std::all_of(names.begin(), names.end(),
                       [&](const SchemaJson& name) { return value.contains(name.get<std::string>()); });
  }

  absl::StatusOr<bool> FitsDependencies(const SchemaJson& value, const SchemaJson& schema, const std::string& keyword) {
    QUIRE_RETURN_IF_ERROR(CheckMap(document_, schema, keyword));
    for (const auto& [name, argument] : schema[keyword].items()) {
      if (!value.contains(name)) continue;
      bool fits = true;
      if (keyword == "dependentSchemas" || !argument.is_array()) {
        QUIRE_ASSIGN_OR_RETURN(fits, Fits(value, argument));
      } else {
        QUIRE_RETURN_IF_ERROR(CheckNames(document_, schema, keyword, argument));
        fits = HasAll(value, argument);
      }
      if (!fits) return false;
    }
    return true;
  }

  absl::StatusOr<bool> FitsMember(const std::string& name, const SchemaJson& member, const SchemaJson& schema,
                                  const std::string& keyword) {
    if (keyword == "propertyNames") return Fits(SchemaJson(name), schema[keyword]);
    const bool has_properties = schema.contains("properties") && schema["properties"].is_object();
    const bool is_described = has_properties && schema["properties"].contains(name);
    if (keyword == "properties") return is_described ? Fits(member, schema[keyword][name]) : true;
    bool has_pattern = false;
    if (schema.contains("patternProperties")) {
      QUIRE_RETURN_IF_ERROR(CheckMap(document_, schema, "patternProperties"));
      for (const auto& [pattern, argument] : schema["patternProperties"].items()) {
        QUIRE_ASSIGN_OR_RETURN(const CharacterDfa* dfa, texts_.OfPropertyPattern(schema, pattern));
        if (!dfa->Matches(name)) continue;
        has_pattern = true;
        if (keyword != "patternProperties") continue;
        QUIRE_ASSIGN_OR_RETURN(const bool fits, Fits(member, argument));
        if (!fits) return false;
      }
    }
    if (keyword == "patternProperties" || is_described || has_pattern) return true;
    return Fits(member, schema["additionalProperties"]);
  }

  const SchemaDocument& document_;
  SchemaTexts& texts_;
  int level_ = 0;
};

// Follows references to a schema that is none.
const SchemaJson* Target(const SchemaDocument& document, const SchemaJson* schema) {
  for (int i = 0; i < kMaxReferences && schema->is_object() && schema->contains("$ref"); ++i) {
    const absl::StatusOr<const SchemaJson*> target = document.Resolve(*schema, "$ref");
    if (!target.ok()) return schema;
    schema = *target;
  }
  return schema;
}

// The values of enum or const, or nothing.
std::optional<std::vector<SchemaJson>> Constants(const SchemaJson& schema) {
  if (!schema.is_object()) return std::nullopt;
  if (schema.contains("const")) return std::vector<SchemaJson>{schema["const"]};
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"].get<std::vector<SchemaJson>>();
  return std::nullopt;
}

// The number of constants that Constants may copy.
size_t NumConstants(const SchemaJson& schema) {
  return schema.is_object() && schema.contains("enum") ? schema["enum"].size() : 1;
}

// The types of values that a schema can accept, as bits, as far as its own keywords tell.
uint8_t AcceptedTypes(const SchemaDocument& document, const SchemaJson& schema) {
  TypeSet types;
  if (const auto constants = Constants(schema)) {
    for (const SchemaJson& value : *constants) types.Add(TypeOf(value));
    return types.bits;
  }
  if (schema.is_object() && schema.contains("type")) {
    if (const auto named = TypesOf(document, schema); named.ok()) return named->bits;
  }
  return 0xFF;
}

// May return true for lists that are too long to be compared.
bool HaveCommon(const std::vector<SchemaJson>& a, const std::vector<SchemaJson>& b) {
  if (a.size() * b.size() > kMaxComparisons) return true;
  return std::any_of(a.begin(), a.end(), [&](const SchemaJson& value) {
    return std::any_of(b.begin(), b.end(), [&](const SchemaJson& other) { return AreEqual(value, other); });
  });
}

// Returns whether a schema accepts all of its constants, as far as it can be seen at once.
bool HasConstantsOnly(const SchemaJson& schema) {
  if (schema.contains("const") && schema.contains("enum")) return false;
  const auto constants = *Constants(schema);
  const bool are_texts =
      std::all_of(constants.begin(), constants.end(), [](const auto& one) { return one.is_string(); });
  const auto keywords = schema.items();
  return std::all_of(keywords.begin(), keywords.end(), [&](const auto& entry) {
    const bool is_type_of_texts = entry.key() == "type" && are_texts && entry.value() == "string";
    return IsAnnotation(entry.key()) || entry.key() == "const" || entry.key() == "enum" || is_type_of_texts;
  });
}

bool Requires(const SchemaJson& schema, const std::string& name) {
  return schema.contains("required") && schema["required"].is_array() &&
         std::find(schema["required"].begin(), schema["required"].end(), name) != schema["required"].end();
}

// How many names Requires may look at.
size_t NumRequired(const SchemaJson& schema) {
  return schema.contains("required") ? schema["required"].size() : 0;
}

bool HasObject(const SchemaJson& schema, const char* keyword) {
  return schema.is_object() && schema.contains(keyword) && schema[keyword].is_object();
}

}  // namespace

bool AreEqual(const SchemaJson& a, const SchemaJson& b) {
  if (a.is_number() && b.is_number()) {
    const std::optional<absl::int128> first = IntegerOf(a);
    const std::optional<absl::int128> second = IntegerOf(b);
    return first.has_value() || second.has_value() ? first == second : a.get<double>() == b.get<double>();
  }
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), AreEqual);
  if (!a.is_object()) return a == b;
  const auto members = a.items();
  return std::all_of(members.begin(), members.end(), [&](const auto& member) {
    const auto other = b.find(member.key());
    return other != b.end() && AreEqual(member.value(), *other);
  });
}

absl::StatusOr<bool> MeetsGoal(const SchemaJson& value, const Goal& goal, const SchemaDocument& document,
                               SchemaTexts* texts) {
  ValueTester tester(document, texts);
  for (const Demand& demand : goal) {
    QUIRE_ASSIGN_OR_RETURN(const bool fits, tester.Fits(value, *demand.schema));
    if (fits == demand.is_negated) return false;
  }
  return true;
}

bool LacksConstants(const SchemaDocument& document, const Goal& goal) {
  if (goal.size() < 2) return false;
  std::optional<std::vector<SchemaJson>> left;
  for (const bool is_negated : {false, true}) {
    for (const Demand& demand : goal) {
      const SchemaJson& schema = *Target(document, demand.schema);
      const auto constants = Constants(schema);
      if (!constants.has_value() || constants->size() > kMaxComparedConstants) continue;
      if (demand.is_negated != is_negated || (is_negated && (!left.has_value() || !HasConstantsOnly(schema)))) continue;
      if (!left.has_value()) {
        left = constants;
        continue;
      }
      std::erase_if(*left, [&](const SchemaJson& value) { return HaveCommon({value}, *constants) == is_negated; });
    }
  }
  return left.has_value() && left->empty();
}

bool AreDisjoint(const SchemaDocument& document, const SchemaJson& a, const SchemaJson& b) {
  const SchemaJson& first = *Target(document, &a);
  const SchemaJson& second = *Target(document, &b);
  if (first == false || second == false) return true;
  if (!document.TakeComparingWork(1 + NumConstants(first) + NumConstants(second))) return false;
  const uint8_t types = AcceptedTypes(document, first);
  const uint8_t other_types = AcceptedTypes(document, second);
  if ((types & other_types) == 0) return true;
  const auto constants = Constants(first);
  const auto others = Constants(second);
  if (constants.has_value() && others.has_value()) {
    return document.TakeComparingWork(constants->size() * others->size()) && !HaveCommon(*constants, *others);
  }
  if (!HasObject(first, "properties") || !HasObject(second, "properties")) return false;
  const auto object = static_cast<uint8_t>(1 << static_cast<int>(ValueType::kObject));
  if ((types & other_types) != object) return false;
  for (const auto& [name, schema] : first["properties"].items()) {
    if (!document.TakeComparingWork(1 + NumRequired(first) + NumRequired(second))) return false;
    if (!second["properties"].contains(name) || !Requires(first, name) || !Requires(second, name)) continue;
    const SchemaJson& mine_in = *Target(document, &schema);
    const SchemaJson& theirs_in = *Target(document, &second["properties"][name]);
    const size_t num_pairs = (1 + NumConstants(mine_in)) * (1 + NumConstants(theirs_in));
    if (!document.TakeComparingWork(num_pairs)) return false;
    const auto mine = Constants(mine_in);
    const auto theirs = Constants(theirs_in);
    if (mine.has_value() && theirs.has_value() && !HaveCommon(*mine, *theirs)) return true;
  }
  return false;
}

}  // namespace quire::grammar
