// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_FORMATS_H_
#define QUIRE_GRAMMAR_SCHEMA_FORMATS_H_

#include <string>
#include <string_view>

namespace quire::grammar {

// A value of the keyword "format" of a JSON schema. Every match of the regular expression has the format, but not every
// text with the format matches.
struct SchemaFormat {
  std::string regex;
  int min_length;  // In characters, of all texts of the regular expression.
  int max_length;
};

// Returns null when the format is not supported. Supported are date, time, date-time, duration, uuid, ipv4, ipv6,
// hostname, email and uri.
const SchemaFormat* FindSchemaFormat(std::string_view name);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_FORMATS_H_
