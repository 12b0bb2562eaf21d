// SPDX-License-Identifier: Apache-2.0

#include "base/json_depth.h"

#include <algorithm>
#include <cstddef>

namespace quire {

int JsonDepth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') ++i;
      is_in_string = c != '"';
      continue;
    }
    is_in_string = c == '"';
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return deepest;
}

}  // namespace quire
