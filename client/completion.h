#ifndef QUIRE_CLIENT_COMPLETION_H_
#define QUIRE_CLIENT_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

// Scripts that complete the commands, options and enumerated values of `app` in a shell, written from the app itself.
// What takes a FILE, as its option text says, completes file names.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMPLETION_H_
