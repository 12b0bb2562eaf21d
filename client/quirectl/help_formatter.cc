// SPDX-License-Identifier: Apache-2.0

#include "client/quirectl/help_formatter.h"

#include <algorithm>
#include <sstream>

#include "client/terminal/wrapped_text.h"

namespace quire {

HelpFormatter::HelpFormatter(int columns) : columns_(columns) {
  column_width(kDescriptionColumn);
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return WrapText(CLI::Formatter::make_description(app), columns_);
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::string footer = CLI::Formatter::make_footer(app);
  if (app->get_parent() != nullptr) {
    footer +=
        "\n`quirectl --help` lists the options that all commands have, such as --endpoint, --token and --output.\n";
  }
  return WrapText(footer, columns_);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  const std::string description = command->get_description();
  std::string sentence = description.substr(0, description.find(". "));
  if (sentence.ends_with('.')) sentence.pop_back();
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_name(), WrapDescription(sentence), column_width_);
  return out.str();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return WrapDescription(CLI::Formatter::make_option_desc(option));
}

std::string HelpFormatter::WrapDescription(const std::string& text) const {
  return WrapText(text, std::max(columns_ - kDescriptionColumn, kMinDescriptionColumns));
}

}  // namespace quire
