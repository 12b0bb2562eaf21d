// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_TERMINAL_WRAPPED_TEXT_H_
#define QUIRE_CLIENT_TERMINAL_WRAPPED_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Breaks the lines of `text` between words so that none is longer than `columns` bytes. A word that is longer has a
// line of its own. A line that begins with a space, such as an example, stays as it is.
std::string WrapText(absl::string_view text, int columns);

}  // namespace quire

#endif  // QUIRE_CLIENT_TERMINAL_WRAPPED_TEXT_H_
