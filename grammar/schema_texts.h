// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_TEXTS_H_
#define QUIRE_GRAMMAR_SCHEMA_TEXTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "grammar/character_dfa.h"
#include "grammar/schema_document.h"
#include "grammar/syntax_tree.h"

namespace quire::grammar {

inline constexpr int kMaxTests = 200'000;  // Of constants and names against schemas, for one document.

// The regular expressions of a document as sets of texts, each of which is made once.
class SchemaTexts {
 public:
  // `tree` has the limit of steps for what is made.
  SchemaTexts(const SchemaDocument& document, SyntaxTree* tree) : document_(document), tree_(*tree) {}

  // The texts that have the pattern or the format of a schema, or a pattern of its patternProperties. The result is
  // valid as long as this object. INVALID_ARGUMENT, with the place, when the pattern is wrong or not supported.
  absl::StatusOr<const CharacterDfa*> OfKeyword(const SchemaJson& schema, const std::string& keyword);
  absl::StatusOr<const CharacterDfa*> OfPropertyPattern(const SchemaJson& schema, const std::string& pattern);

  // Counts one test of a value. Returns false when there were too many for one document.
  bool CountTest() { return --num_tests_left_ >= 0; }

 private:
  absl::StatusOr<const CharacterDfa*> Of(const std::string& regex, bool is_search);

  const SchemaDocument& document_;
  SyntaxTree& tree_;
  std::map<std::pair<std::string, bool>, CharacterDfa> known_;
  int num_tests_left_ = kMaxTests;
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_TEXTS_H_
