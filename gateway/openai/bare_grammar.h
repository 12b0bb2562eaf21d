// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_BARE_GRAMMAR_H_
#define QUIRE_GATEWAY_OPENAI_BARE_GRAMMAR_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/schema_document.h"

namespace quire {

// Makes grammars in Lark for values as BareObject reads them, without white space. The values fit a JSON schema, except
// that `pattern`, `format`, `uniqueItems`, `contains`, `not`, `if` and bounds of the number of members are not looked
// at; objects have the members that the schema names, and lists what `items` says.
class BareGrammar {
 public:
  // `quote` is the tag before and behind a string. It must outlive the grammar. What is longer than `max_bytes` ends
  // early.
  BareGrammar(absl::string_view quote, size_t max_bytes) : quote_(quote), max_bytes_(max_bytes) {}

  // Returns the items of a value that fits a schema. They begin with a space.
  std::string Root(SchemaDocument* schema);

  // Returns the rules that these items use, each with a line break behind it.
  std::string Rules() const;

 private:
  // The document is the one of which the schema is a part.
  std::string Value(const Json& schema, SchemaDocument* document);
  std::string KnownValue(const Json& schema, SchemaDocument* document);
  std::string OfType(const std::string& type, const Json& schema, SchemaDocument* document);
  std::string Literal(const Json& value) const;
  std::string Key(const std::string& name) const;
  std::string String(const Json& schema) const;
  std::string List(const Json& schema, SchemaDocument* document);
  std::string Object(const Json& schema, SchemaDocument* document);
  // Returns the name of the rule for what a reference means.
  std::string Reference(const Json& target, SchemaDocument* document);
  std::string Any();

  const absl::string_view quote_;
  const size_t max_bytes_;
  std::map<const Json*, std::string> names_;  // Of the rules, by what the references of a document mean.
  size_t num_references_ = 0;                 // Of all documents.
  std::vector<std::string> rules_;
  size_t num_bytes_ = 0;  // So far, of everything.
  int depth_ = 0;
  bool has_any_ = false;
};

// Returns the names of the members that the schema of an object requires. They are valid as long as the schema.
absl::flat_hash_set<absl::string_view> RequiredMembers(const Json& object);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_BARE_GRAMMAR_H_
