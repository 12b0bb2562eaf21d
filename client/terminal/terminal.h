// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_TERMINAL_TERMINAL_H_
#define QUIRE_CLIENT_TERMINAL_TERMINAL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// The abilities of standard output.
struct Terminal {
  bool is_terminal = false;
  bool has_color = false;
  int columns = 80;
  int rows = 24;
};

// Describes standard output. It has colours if it is a terminal that is not "dumb" and $NO_COLOR is not set (see
// no-color.org). If it is not a terminal, $COLUMNS is its width.
Terminal DescribeTerminal();

// Makes a text that somebody else has chosen safe to print on one line: control characters become "\n" or "\x1b".
std::string Printable(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_CLIENT_TERMINAL_TERMINAL_H_
