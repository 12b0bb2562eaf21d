// SPDX-License-Identifier: Apache-2.0

#include "grammar/grammar.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/ebnf_parser.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/nesting.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_annotations.h"

namespace quire::grammar {
namespace {

size_t NumBytes(const Source& source) {
  size_t num_bytes = source.text.size();
  for (const std::string& choice : source.choices) num_bytes += choice.size();
  return num_bytes;
}

absl::Status TooLarge(size_t num_bytes, const char* which, size_t limit) {
  return absl::InvalidArgumentError(
      absl::StrCat("has ", num_bytes, " bytes", which, ", at most ", limit, " are allowed"));
}

// Takes the annotations out of a source that is small only without them.
absl::StatusOr<Source> SmallSource(const Source& source) {
  const size_t num_bytes = NumBytes(source);
  if (num_bytes <= kMaxSourceBytes) return source;
  if (num_bytes > kMaxAnnotatedBytes) return TooLarge(num_bytes, "", kMaxAnnotatedBytes);
  Source small = WithoutAnnotations(source);
  if (NumBytes(small) <= kMaxSourceBytes) return small;
  const bool has_annotations = NumBytes(small) < num_bytes;
  return TooLarge(NumBytes(small), has_annotations ? " without descriptions and other annotations" : "",
                  kMaxSourceBytes);
}

absl::StatusOr<SyntaxTree> TreeOfChoices(const std::vector<std::string>& choices) {
  if (choices.empty()) return absl::InvalidArgumentError("has no choice");
  if (choices.size() > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", choices.size(), " choices, at most ", kMaxChoices, " are allowed"));
  }
  SyntaxTree tree;
  const RuleId root = tree.AddRule("choice", /*may_be_inlined=*/false);
  std::vector<ExprId> parts;
  for (size_t i = 0; i < choices.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(CheckUtf8(choices[i], absl::StrCat("choice ", i)));
    parts.push_back(tree.Bytes(choices[i]));
  }
  tree.SetBody(root, tree.Choice(std::move(parts)));
  return tree;
}

absl::StatusOr<SyntaxTree> TreeOf(const Source& source) {
  switch (source.kind) {
    case Source::Kind::kJsonSchema:
      return ParseJsonSchema(source.text);
    case Source::Kind::kJsonObject:
      return ParseJsonSchema(R"({"type": "object", "additionalProperties": true})");
    case Source::Kind::kChoice:
      return TreeOfChoices(source.choices);
    case Source::Kind::kEbnf:
      return ParseEbnf(source.text);
    case Source::Kind::kRegex:
      break;
  }
  SyntaxTree tree;
  const RuleId root = tree.AddRule("regex", /*may_be_inlined=*/false);
  QUIRE_ASSIGN_OR_RETURN(const ExprId body, ParseMatchableRegex(source.text, RegexText::kPlain, &tree));
  tree.SetBody(root, body);
  return tree;
}

}  // namespace

Source WithoutAnnotations(Source source) {
  if (source.kind == Source::Kind::kJsonSchema) source.text = WithoutAnnotations(source.text);
  if (source.kind == Source::Kind::kEbnf) source.text = WithoutSchemaAnnotations(source.text);
  return source;
}

absl::StatusOr<std::shared_ptr<const Automaton>> Compile(const Source& source, std::string_view owner) {
  QUIRE_ASSIGN_OR_RETURN(const Source small, SmallSource(source));
  QUIRE_ASSIGN_OR_RETURN(SyntaxTree tree, TreeOf(small));
  QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<const Automaton> automaton, Automaton::Compile(std::move(tree), owner));
  if (!HasTextWithin(*automaton, kMaxNesting)) {
    return absl::InvalidArgumentError(
        absl::StrCat("every text needs rules that are nested in more than ", kMaxNesting, " levels"));
  }
  if (Matcher(automaton).is_exhausted()) {
    return absl::InvalidArgumentError("the beginning of a text can be read in too many ways");
  }
  return automaton;
}

}  // namespace quire::grammar
