// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_QUIRECTL_HELP_FORMATTER_H_
#define QUIRE_CLIENT_QUIRECTL_HELP_FORMATTER_H_

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

// Formats --help so that no line is wider than the terminal, except examples.
class HelpFormatter : public CLI::Formatter {
 public:
  // `columns` is the width of the terminal.
  explicit HelpFormatter(int columns);

  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
  // The list of commands shows the first sentence of each description. The help of a command shows all of it.
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option_desc(const CLI::Option* option) const override;

 private:
  // The column at which the descriptions of options and commands begin.
  static constexpr int kDescriptionColumn = 30;
  // A narrow terminal breaks the lines itself.
  static constexpr int kMinDescriptionColumns = 20;

  std::string WrapDescription(const std::string& text) const;

  const int columns_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_QUIRECTL_HELP_FORMATTER_H_
