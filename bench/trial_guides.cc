// SPDX-License-Identifier: Apache-2.0

#include "bench/trial_guides.h"

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// A schema of an object with many properties, as forms have them.
std::string FormSchema(int num_properties) {
  const char* const kinds[] = {
      R"({"type": "string"})",
      R"({"type": "integer", "minimum": 0, "maximum": 150})",
      R"({"type": "string", "format": "date-time"})",
      R"({"enum": ["red", "green", "blue", "none of these"]})",
      R"({"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 8})",
      R"({"anyOf": [{"type": "null"}, {"type": "number"}]})",
      R"({"type": "string", "pattern": "^[A-Z]{2}-\\d{4,8}$"})",
  };
  std::string properties;
  std::string required;
  for (int i = 0; i < num_properties; ++i) {
    absl::StrAppend(&properties, i == 0 ? "" : ", ", "\"property_", i, "\": ", kinds[i % 7]);
    if (i % 3 != 2) absl::StrAppend(&required, required.empty() ? "" : ", ", "\"property_", i, "\"");
  }
  return absl::StrCat(R"({"type": "object", "properties": {)", properties, R"(}, "required": [)", required, "]}");
}

}  // namespace

std::vector<NamedSource> TrialGuides() {
  using Kind = grammar::Source::Kind;
  return {
      {"JSON object", {.kind = Kind::kJsonObject}},
      {"schema, 5 properties", {.kind = Kind::kJsonSchema, .text = FormSchema(5)}},
      {"schema, 40 properties", {.kind = Kind::kJsonSchema, .text = FormSchema(40)}},
      {"schema, recursive",
       {.kind = Kind::kJsonSchema,
        .text = R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"name": {"type": "string"},
                    "value": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                    "required": ["name", "children"], "additionalProperties": {"type": "boolean"}}}})"}},
      {"regular expression",
       {.kind = Kind::kRegex, .text = R"((\w+\.)*\w+@(\w+\.)+[a-z]{2,6}(, \d{1,5} [^"\n]{0,80})?)"}},
      {"grammar", {.kind = Kind::kEbnf, .text = R"~(root ::= select (";\n" select)*
select ::= "SELECT " column (", " column)* " FROM " name (" WHERE " condition)?
column ::= name | "count(" name ")" | "*"
condition ::= term ((" AND " | " OR ") term)*
term ::= name (" = " | " < ") value | "(" condition ")"
value ::= [0-9]+ | "'" [^'\n]* "'"
name ::= [a-z] [a-z_0-9]*)~"}},
  };
}

TokenId DrawToken(const std::vector<uint32_t>& mask, const grammar::TokenTable& tokens, Random* random) {
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < tokens.vocab_size(); ++token) {
    if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) allowed.push_back(token);
  }
  if (allowed.empty()) return -1;
  const TokenId token = allowed[static_cast<size_t>(random->Below(static_cast<int>(allowed.size())))];
  return tokens.is_end(token) ? -1 : token;
}

}  // namespace quire
