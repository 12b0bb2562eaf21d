// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_LARK_ITEMS_H_
#define QUIRE_GATEWAY_OPENAI_LARK_ITEMS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// Parts of grammars in Lark. Each begins with a space.

// A grammar with "::=" would be read as GBNF. In JSON it can be in a string only, where this form means the same.
std::string WithoutGbnfSign(absl::string_view json);

// Returns a text as a literal.
std::string LarkLiteral(absl::string_view text);

struct LarkMember {
  std::string items;
  bool is_required;
};

// Returns members with a separator between them: those that are required, and behind them the others. If all may be
// missing, each of them may be the first. The result ends early when it is longer than `max_bytes`.
std::string LarkMembers(const std::vector<LarkMember>& members, absl::string_view separator, size_t max_bytes);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_LARK_ITEMS_H_
