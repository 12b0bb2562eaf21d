// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_PARAMETER_TYPES_H_
#define QUIRE_GATEWAY_OPENAI_PARAMETER_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/schema_document.h"

namespace quire {

// The types that a JSON value may have, as bits.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kStringType = 1;
inline constexpr JsonTypes kNumberType = 2;
inline constexpr JsonTypes kBooleanType = 4;
inline constexpr JsonTypes kNullType = 8;
inline constexpr JsonTypes kArrayType = 16;
inline constexpr JsonTypes kObjectType = 32;
inline constexpr JsonTypes kAnyType = 63;

// The types of the parameters of a tool, by their names.
using ParameterTypes = std::map<std::string, JsonTypes>;

// Finds the types that the schemas of one request allow. References may repeat, so a small request can describe much.
// What is read is bounded for all schemas together; schemas of a few parts are always read whole.
class SchemaTypes {
 public:
  // Returns the types that a JSON schema allows, judging by its type, enum, const and what it refers to. It may return
  // more than the schema allows, and all types beyond the bounds. The schema is a part of the document, which must live
  // until NextDocument.
  JsonTypes Of(const Json& schema, SchemaDocument* document);
  // The next schema is a part of another document.
  void NextDocument() { enums_.clear(); }

 private:
  JsonTypes Visit(const Json& schema, SchemaDocument* document, int* visits);
  JsonTypes OfEnum(const Json& values);
  // Returns whether an enumeration of this number of values may be read, and counts them.
  bool MayRead(size_t num_values);

  int visits_left_ = 50'000;
  size_t values_left_ = 1'000'000;
  std::map<const Json*, JsonTypes> enums_;  // The types of those that were read, which many schemas may share.
};

// Returns the types of the properties of the schema of an object. A schema that is wrong has none.
ParameterTypes ParameterTypesOf(SchemaDocument* schema, SchemaTypes* types);

// Returns the parameters of all tools, which have OpenAI's form, by the names of the tools. REQUIRES: the tools were
// read without error.
std::map<std::string, ParameterTypes> ParametersOfTools(const Json& tools);

// Returns the JSON of a value that a model has written as plain text: the text itself if it is JSON of one of the types
// other than a string, its JSON if it is Python, and otherwise a string of JSON.
std::string TypedValue(absl::string_view text, JsonTypes types);

// Appends a text as a part of a string of JSON, without quotes. The text may end within a character.
void AppendPartOfString(absl::string_view text, std::string* out);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_PARAMETER_TYPES_H_
