// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/lark_items.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace quire {

std::string WithoutGbnfSign(absl::string_view json) {
  return absl::StrReplaceAll(json, {{"::=", "\\u003a:="}});
}

std::string LarkLiteral(absl::string_view text) {
  return absl::StrCat(
      " \"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}, {"::=", "\\x3a:="}}), "\"");
}

std::string LarkMembers(const std::vector<LarkMember>& members, absl::string_view separator, size_t max_bytes) {
  std::string needed;
  std::vector<const std::string*> optional;
  for (const LarkMember& member : members) {
    if (member.is_required) {
      absl::StrAppend(&needed, needed.empty() ? "" : LarkLiteral(separator), member.items);
    } else {
      optional.push_back(&member.items);
    }
  }
  const auto behind = [&](size_t first) {
    std::string items;
    for (size_t i = first; i < optional.size(); ++i) {
      absl::StrAppend(&items, " [", LarkLiteral(separator), *optional[i], "]");
    }
    return items;
  };
  if (!needed.empty()) return needed + behind(0);
  std::string body = " \"\"";
  for (size_t i = 0; i < optional.size() && body.size() <= max_bytes; ++i) {
    absl::StrAppend(&body, " |", *optional[i], behind(i + 1));
  }
  return body;
}

}  // namespace quire
