// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_QUIRECTL_USAGE_ERROR_H_
#define QUIRE_CLIENT_QUIRECTL_USAGE_ERROR_H_

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

// Describes in our own words why `app` could not parse the command line, and where to find help. When a command or an
// option does not exist, the text names the one that the user probably meant.
std::string DescribeUsageError(const CLI::App& app, const CLI::ParseError& error);

// Describes the first argument such as "--grammar=", or returns "" when there is none. CLI11 would take the next
// argument as the value. Call it before `app` parses the command line.
std::string DescribeMissingValue(const CLI::App& app, int argc, const char* const* argv);

}  // namespace quire

#endif  // QUIRE_CLIENT_QUIRECTL_USAGE_ERROR_H_
