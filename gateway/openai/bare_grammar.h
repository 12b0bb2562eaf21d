// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_BARE_GRAMMAR_H_
#define QUIRE_GATEWAY_OPENAI_BARE_GRAMMAR_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/field_reader.h"

namespace quire {

// Makes grammars in Lark for values as BareObject reads them, without white space. The values fit a JSON schema, except
// that `pattern`, `format`, `uniqueItems`, `contains`, `not`, `if` and bounds of the number of members are not looked
// at; objects have the members that the schema names, and lists what `items` says.
class BareGrammar {
 public:
  // `quote` is the tag before and behind a string. It must outlive the grammar. What is longer than `max_bytes` ends
  // early.
  BareGrammar(absl::string_view quote, size_t max_bytes) : quote_(quote), max_bytes_(max_bytes) {}

  // Returns the items of a value that fits a schema, which is a whole document. They begin with a space.
  std::string Root(const Json& root);

  // Returns the rules that these items use, each with a line break behind it.
  std::string Rules() const;

 private:
  // `root` is the document of which the schema is a part.
  std::string Value(const Json& schema, const Json& root);
  std::string KnownValue(const Json& schema, const Json& root);
  std::string OfType(const std::string& type, const Json& schema, const Json& root);
  std::string Literal(const Json& value) const;
  std::string Key(const std::string& name) const;
  std::string String(const Json& schema) const;
  std::string List(const Json& schema, const Json& root);
  std::string Object(const Json& schema, const Json& root);
  // Returns the name of the rule for what a reference means.
  std::string Reference(const Json& target, const Json& root);
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

// Returns whether the schema of an object requires a member.
bool IsRequiredMember(const Json& object, const std::string& name);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_BARE_GRAMMAR_H_
