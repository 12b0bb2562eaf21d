#ifndef QUIRE_CLIENT_QUIRECTL_USAGE_ERROR_H_
#define QUIRE_CLIENT_QUIRECTL_USAGE_ERROR_H_

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

// Describes in our own words why `app` could not parse the command line, and where to find help. When a command or an
// option does not exist, the text names the one that the user probably meant.
std::string DescribeUsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace quire

#endif  // QUIRE_CLIENT_QUIRECTL_USAGE_ERROR_H_
