// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_LEXER_H_
#define QUIRE_KV_MANAGER_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::jinja {

struct Token {
  enum class Kind {
    kText,         // Outside of all tags; `text` is what is printed.
    kOutputBegin,  // {{
    kOutputEnd,    // }}
    kTagBegin,     // {%
    kTagEnd,       // %}
    kName,         // `text`
    kString,       // `text` is the value
    kInteger,      // `integer`
    kFloat,        // `number`
    kOperator,     // `text`
    kEnd,          // The end of the template.
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// Cuts a template into tokens, with trim_blocks and lstrip_blocks as Transformers sets them. The last token is kEnd.
// INVALID_ARGUMENT, beginning with "line N: ", when something is not closed or not a token. REQUIRES: valid UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_LEXER_H_
