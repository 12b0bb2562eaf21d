// SPDX-License-Identifier: Apache-2.0

#include "tests/grammar/trial_sources.h"

namespace quire::grammar {

std::vector<Source> TrialSources() {
  using Kind = Source::Kind;
  return {
      {.kind = Kind::kJsonObject},
      {.kind = Kind::kJsonSchema, .text = R"({"type": "array", "items": {"type": ["string", "integer", "null"]}})"},
      {.kind = Kind::kJsonSchema,
       .text = R"({"properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 3, "maximum": 140},
                   "next": {"$ref": "#"}}, "required": ["age"], "additionalProperties": {"type": "boolean"}})"},
      {.kind = Kind::kJsonSchema, .text = R"({"type": "string", "minLength": 2, "maxLength": 5})"},
      {.kind = Kind::kJsonSchema,
       .text = R"({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 6}})"},
      {.kind = Kind::kJsonSchema, .text = R"({"type": "string", "pattern": "^[A-Z]{2}-\\d{2,4}[^x]*$"})"},
      {.kind = Kind::kRegex, .text = "(\\w+\\.)*\\w+@[^\"\n]{0,5}(, .{2})?"},
      {.kind = Kind::kRegex, .text = "[^a-f]{1,9}([\\u0000-\\u00ff]|[\\u4e00-\\u9fff]x)*"},
      {.kind = Kind::kRegex, .text = "(true|false|[a-z]+|\\d{1,3}) ?(\\.|,)[^\\d]*"},
      {.kind = Kind::kEbnf, .text = R"(root ::= word | "'" [^'\n]* "'" root | "<" [^>]* item
item ::= ">" root
word ::= [^ ]{1,4} " ")"},
      {.kind = Kind::kChoice, .choices = {"true", "null", "name", "no", "nothing"}},
      {.kind = Kind::kEbnf, .text = R"(root ::= item ("," " "? item)* "."?
item ::= [a-z]+ | "[" root "]" | pair
pair ::= item-like ":" root | ""
item-like ::= "a" | "\"" [^"]* "\"")"},
  };
}

}  // namespace quire::grammar
