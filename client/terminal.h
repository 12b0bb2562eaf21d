#ifndef QUIRE_CLIENT_TERMINAL_H_
#define QUIRE_CLIENT_TERMINAL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// What standard output can show.
struct Terminal {
  bool is_terminal = false;  // If not, output is plain and ends by itself.
  bool has_color = false;
  int columns = 80;
  int rows = 24;
};

// Colours need a terminal that is not "dumb", and no $NO_COLOR (see no-color.org). $COLUMNS is the width of what is no
// terminal.
Terminal DescribeTerminal();

// A text that others have chosen, in one line that does not drive the terminal: control characters as "\n" or "\x1b".
std::string Printable(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_CLIENT_TERMINAL_H_
