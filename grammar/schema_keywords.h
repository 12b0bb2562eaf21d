// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_KEYWORDS_H_
#define QUIRE_GRAMMAR_SCHEMA_KEYWORDS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grammar/decimal.h"
#include "grammar/schema_document.h"

namespace quire::grammar {

inline constexpr int kMaxCount = 10'000;  // Most items, properties or characters that a schema may ask for.
// No text is that long, so larger limits of schemas are taken for this one.
inline constexpr int kMaxLimit = 1 << 30;

enum class ValueType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };
inline constexpr std::array<ValueType, 6> kValueTypes = {ValueType::kNull,   ValueType::kBoolean, ValueType::kNumber,
                                                         ValueType::kString, ValueType::kArray,   ValueType::kObject};

ValueType TypeOf(const SchemaJson& value);

// The types that the keyword `type` names.
struct TypeSet {
  uint8_t bits = 0;
  bool has_integers_only = false;  // Of the numbers.

  bool Has(ValueType type) const { return (bits >> static_cast<int>(type) & 1) != 0; }
  void Add(ValueType type) { bits = static_cast<uint8_t>(bits | 1 << static_cast<int>(type)); }
};

// Returns whether the value of a keyword is a map of schemas, and whether it is a schema or a list of schemas.
bool IsMapOfSchemas(std::string_view keyword);
bool HasSchemas(std::string_view keyword);
// Returns whether a keyword has no effect on what is accepted, as all keywords that are not known.
bool IsAnnotation(std::string_view keyword);
// Returns whether a schema accepts all values, as far as it can be seen at once.
bool AcceptsAll(const SchemaJson& schema);
// The type whose values a keyword is for, or nothing if it is for all values.
std::optional<ValueType> TypeOfKeyword(std::string_view keyword);

// Checks that a schema is an object or a boolean without keywords that are known and not supported.
absl::Status CheckKeywords(const SchemaDocument& document, const SchemaJson& schema);

// Readers of keywords. REQUIRES: the schema has the keyword.
absl::StatusOr<TypeSet> TypesOf(const SchemaDocument& document, const SchemaJson& schema);
absl::StatusOr<int> CountOf(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword);
absl::StatusOr<Decimal> DecimalOf(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword);
// One of the four keywords for bounds of numbers. Returns nothing for a boolean of draft 4, which belongs to the bound
// beside it.
struct Bound {
  Decimal number;
  bool is_upper;
  bool is_excluded;
};
absl::StatusOr<std::optional<Bound>> BoundOf(const SchemaDocument& document, const SchemaJson& schema,
                                             const std::string& keyword);
absl::StatusOr<std::string> TextOf(const SchemaDocument& document, const SchemaJson& schema,
                                   const std::string& keyword);
absl::StatusOr<bool> FlagOf(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword);
// An array of schemas, an object of schemas, and an array of names.
absl::Status CheckList(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword);
absl::Status CheckMap(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword);
absl::Status CheckNames(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                        const SchemaJson& names);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_KEYWORDS_H_
