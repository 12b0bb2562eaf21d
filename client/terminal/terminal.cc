// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {
namespace {

constexpr int kMinColumns = 40;
constexpr int kMaxColumns = 1000;

absl::string_view Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Terminal DescribeTerminal() {
  Terminal terminal;
  terminal.is_terminal = isatty(STDOUT_FILENO) != 0;
  terminal.has_color = terminal.is_terminal && Environment("NO_COLOR").empty() && Environment("TERM") != "dumb";
  winsize size;
  int columns = 0;
  if (terminal.is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    columns = size.ws_col;
    if (size.ws_row > 0) terminal.rows = size.ws_row;
  } else if (!absl::SimpleAtoi(Environment("COLUMNS"), &columns)) {
    columns = 0;
  }
  if (columns >= kMinColumns && columns <= kMaxColumns) terminal.columns = columns;
  return terminal;
}

std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    const absl::string_view character(&c, 1);
    absl::StrAppend(&printable, absl::ascii_iscntrl(c) ? absl::CHexEscape(character) : std::string(character));
  }
  return printable;
}

}  // namespace quire
