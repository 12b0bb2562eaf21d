// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_JSON_DEPTH_H_
#define QUIRE_BASE_JSON_DEPTH_H_

#include <string_view>

namespace quire {

// Returns how deeply the objects and lists of a JSON text are nested: 0 for a number, 1 for "[]", 2 for "[{}]". Parsers
// and the destructors of parsed values recurse, so the depth of a text of strangers must be limited before it is
// parsed. The text need not be valid.
int JsonDepth(std::string_view text);

}  // namespace quire

#endif  // QUIRE_BASE_JSON_DEPTH_H_
