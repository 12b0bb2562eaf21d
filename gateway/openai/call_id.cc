// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/call_id.h"

#include <cstddef>
#include <functional>

#include "absl/strings/str_cat.h"

namespace quire {

std::string CallId(absl::string_view prefix, const std::string& name, ToolCallFormat format) {
  constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  size_t hash = std::hash<std::string>()(name);
  std::string digits;
  for (int i = 0; i < 9; ++i, hash /= 36) digits += kDigits[hash % 36];
  return format == ToolCallFormat::kMistral ? digits : absl::StrCat(prefix, digits);
}

}  // namespace quire
