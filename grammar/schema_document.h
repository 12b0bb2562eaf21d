// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_DOCUMENT_H_
#define QUIRE_GRAMMAR_SCHEMA_DOCUMENT_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "grammar/parse_error.h"
#include "nlohmann/json.hpp"

namespace quire::grammar {

inline constexpr int kMaxSchemaDepth = 64;  // Deepest nesting of schemas as they are written.
// A schema in a schema takes up to two levels of JSON.
inline constexpr JsonLimits kSchemaLimits = {.max_depth = 2 * kMaxSchemaDepth};

// Keeps the order of properties.
using SchemaJson = nlohmann::ordered_json;

// The text of a JSON schema, with the place of each part and what references name.
class SchemaDocument {
 public:
  // INVALID_ARGUMENT, with the place, when the text is not JSON in UTF-8, or nested too deeply.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(std::string_view text);

  const SchemaJson& root() const { return root_; }
  // Returns the JSON pointer of a part, such as "#/items". A part that was made has the place of its origin.
  std::string PlaceOf(const SchemaJson& value) const;
  // Keeps a schema that is not in the text. `origin` is the part from which it comes.
  const SchemaJson& Make(SchemaJson schema, const SchemaJson& origin);

  // Looking for common values of schemas may take a million steps for the whole document. Takes `work` of them, and
  // returns whether there were enough.
  bool TakeComparingWork(size_t work) const { return (comparing_work_ -= static_cast<int64_t>(work)) >= 0; }

  // The part that the keyword $ref or $dynamicRef of a schema names. References to other documents are errors.
  absl::StatusOr<const SchemaJson*> Resolve(const SchemaJson& schema, const std::string& keyword) const;
  // Whether the rules of drafts before 2019-09 apply, in which keywords beside $ref have no effect.
  bool ignores_siblings_of_ref() const { return ignores_siblings_of_ref_; }
  // Whether the rules of draft 4 apply, in which booleans say whether bounds are excluded.
  bool is_of_draft_4() const { return is_of_draft_4_; }

 private:
  struct Parent {
    const SchemaJson* value;  // Null for the root.
    std::string key;
    size_t resource;
  };
  // A schema with an identity of its own, to which references within it are relative.
  struct Resource {
    std::string uri;
    const SchemaJson* root;
    std::map<std::string, const SchemaJson*> anchors = {};
    std::map<std::string, const SchemaJson*> dynamic_anchors = {};
  };

  SchemaDocument() = default;
  void Index(const SchemaJson& value, Parent parent, bool is_schema);
  size_t ResourceOf(const SchemaJson& schema, size_t outer);
  const SchemaJson* Named(const Resource& resource, const std::string& fragment) const;

  SchemaJson root_;
  absl::flat_hash_map<const SchemaJson*, Parent> parents_;
  std::vector<Resource> resources_;
  std::vector<std::unique_ptr<SchemaJson>> made_;
  bool ignores_siblings_of_ref_ = false;
  bool is_of_draft_4_ = false;
  mutable int64_t comparing_work_ = 1'000'000;
};

// Returns the JSON text of a value for an error, shortened to 64 bytes.
std::string Shown(const SchemaJson& value);

// The error of a part of a document.
template <typename... Parts>
absl::Status SchemaError(const SchemaDocument& document, const SchemaJson& part, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("at ", document.PlaceOf(part), ": ", MessagePart(parts)...));
}

// The error of a keyword of a schema. The parts follow the value of the keyword, as in: at #/minItems: the keyword
// "minItems" is -1, it must be ... REQUIRES: the schema has the keyword.
template <typename... Parts>
absl::Status KeywordError(const SchemaDocument& document, const SchemaJson& schema, const std::string& keyword,
                          const Parts&... parts) {
  const SchemaJson& value = *schema.find(keyword);
  return SchemaError(document, value, "the keyword \"", keyword, "\" is ", Shown(value), parts...);
}

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_DOCUMENT_H_
