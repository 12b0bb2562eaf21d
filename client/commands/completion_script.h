// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_COMPLETION_SCRIPT_H_
#define QUIRE_CLIENT_COMMANDS_COMPLETION_SCRIPT_H_

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

// Scripts that complete the commands, options and enumerated values of `app` in a shell. They are generated from the
// app. An option whose option text begins with FILE completes file names.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_COMPLETION_SCRIPT_H_
