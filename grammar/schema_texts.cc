// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_texts.h"

#include <utility>

#include "base/status.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_formats.h"

namespace quire::grammar {

absl::StatusOr<const CharacterDfa*> SchemaTexts::Of(const std::string& regex, bool is_search) {
  const std::pair key(regex, is_search);
  if (const auto found = known_.find(key); found != known_.end()) return &found->second;
  SyntaxTree tree;
  *tree.character_steps() = *tree_.character_steps();
  QUIRE_ASSIGN_OR_RETURN(const ExprId expr, is_search ? ParseRegexSearch(regex, RegexText::kPlain, &tree)
                                                      : ParseRegex(regex, RegexText::kPlain, &tree));
  *tree_.character_steps() = *tree.character_steps();
  QUIRE_ASSIGN_OR_RETURN(CharacterDfa dfa, CharacterDfa::Of(tree, expr, tree_.character_steps()));
  return &known_.emplace(key, std::move(dfa)).first->second;
}

absl::StatusOr<const CharacterDfa*> SchemaTexts::OfKeyword(const SchemaJson& schema, const std::string& keyword) {
  const std::string& text = schema[keyword].get_ref<const std::string&>();
  const bool is_pattern = keyword == "pattern";
  absl::StatusOr<const CharacterDfa*> dfa = Of(is_pattern ? text : FindSchemaFormat(text)->regex, is_pattern);
  if (!dfa.ok()) return KeywordError(document_, schema, keyword, ", ", dfa.status().message());
  return dfa;
}

absl::StatusOr<const CharacterDfa*> SchemaTexts::OfPropertyPattern(const SchemaJson& schema,
                                                                   const std::string& pattern) {
  absl::StatusOr<const CharacterDfa*> dfa = Of(pattern, /*is_search=*/true);
  if (dfa.ok()) return dfa;
  return SchemaError(document_, schema["patternProperties"][pattern], "in the keyword \"patternProperties\", ",
                     dfa.status().message());
}

}  // namespace quire::grammar
