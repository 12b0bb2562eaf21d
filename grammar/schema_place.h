// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_PLACE_H_
#define QUIRE_GRAMMAR_SCHEMA_PLACE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grammar/parse_error.h"
#include "nlohmann/json.hpp"

namespace quire::grammar {

// Keeps the order of properties.
using SchemaJson = nlohmann::ordered_json;

// Returns a key of a JSON object as a part of a JSON pointer.
std::string PointerPart(std::string_view key);

// Says where a schema, or a part of one, is in its document. A schema that joins others, as allOf does, is not in the
// document itself. Its place knows those of the others, so that each part of it has the place from which it comes.
// The document must outlive the place.
class SchemaPlace {
 public:
  // `pointer` is the JSON pointer of the value, "" for the whole document.
  SchemaPlace(const SchemaJson& value, std::string pointer) : origins_{{&value, std::move(pointer)}} {}

  // The place of a schema that joins what is at two places. Where both have a part, the part is that of `first`.
  static SchemaPlace Join(SchemaPlace first, const SchemaPlace& second);

  // The place of a member of an object, and of an element of an array.
  SchemaPlace Child(std::string_view key) const;
  SchemaPlace Child(size_t index) const;

  const std::string& pointer() const { return origins_.front().pointer; }

 private:
  struct Origin {
    const SchemaJson* value;  // It is null if the document has no such part.
    std::string pointer;
  };

  SchemaPlace() = default;

  std::vector<Origin> origins_;  // There is at least one.
};

// Returns the JSON text of a value for an error, shortened to 64 bytes.
std::string Shown(const SchemaJson& value);

// The error of a schema, or of the part of it that is at the place.
template <typename... Parts>
absl::Status SchemaError(const SchemaPlace& place, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("at #", place.pointer(), ": ", MessagePart(parts)...));
}

// The error of a keyword of the schema at the place. The parts follow the value of the keyword, as in: at #/minItems:
// the keyword "minItems" is -1, it must be ... REQUIRES: the schema has the keyword.
template <typename... Parts>
absl::Status KeywordError(const SchemaPlace& place, const SchemaJson& schema, std::string_view keyword,
                          const Parts&... parts) {
  return SchemaError(place.Child(keyword), "the keyword \"", keyword, "\" is ",
                     Shown(*schema.find(std::string(keyword))), parts...);
}

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_PLACE_H_
