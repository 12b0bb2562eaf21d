// SPDX-License-Identifier: Apache-2.0

#include "grammar/guide_source.h"

namespace quire::grammar {

Source SourceOf(const v1::Guide& guide) {
  using Kind = Source::Kind;
  switch (guide.kind_case()) {
    case v1::Guide::kJsonSchema:
      return {.kind = Kind::kJsonSchema, .text = guide.json_schema()};
    case v1::Guide::kRegex:
      return {.kind = Kind::kRegex, .text = guide.regex()};
    case v1::Guide::kGrammar:
      return {.kind = Kind::kEbnf, .text = guide.grammar()};
    case v1::Guide::kChoice:
      return {.kind = Kind::kChoice, .choices = {guide.choice().texts().begin(), guide.choice().texts().end()}};
    case v1::Guide::kJsonObject:
    case v1::Guide::KIND_NOT_SET:
      break;
  }
  return {.kind = Kind::kJsonObject};
}

}  // namespace quire::grammar
