// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_COMMAND_LIST_H_
#define QUIRE_CLIENT_COMMANDS_COMMAND_LIST_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/library/client.h"
#include "client/terminal/output.h"

namespace quire {

// The values of quirectl's global options, for every command.
struct CommandContext {
  ClientOptions client;  // `timeout` is --rpc-timeout.
  OutputFormat format;
  const CLI::App& program;  // Has all commands and options; `quirectl completion` describes them.
};

// The options of a command that has none.
struct NoOptions {};

// The commands of quirectl. A command is an Options struct, a function that runs it, and one call of Add that declares
// it. Used by the main thread.
class CommandList {
 public:
  // A command and where its options are stored. Both live as long as the list's CLI::App.
  template <typename Options>
  struct Declared {
    CLI::App* command;
    Options* options;
  };

  // `app` is borrowed and outlives the list.
  explicit CommandList(CLI::App* app) : app_(app) {}

  // Declares a command. The caller adds its arguments and options to the result. `run` returns the exit code.
  template <typename Options>
  Declared<Options> Add(const std::string& name, const std::string& description,
                        int (*run)(const Options&, const CommandContext&)) {
    const auto options = std::make_shared<Options>();
    CLI::App* const command = app_->add_subcommand(name, description);
    commands_.push_back({command, [options, run](const CommandContext& context) { return run(*options, context); },
                         /*is_offline=*/false});
    return {command, options.get()};
  }

  // The same for a command that does not call the manager. It runs even if the connection options are wrong.
  template <typename Options>
  Declared<Options> AddOffline(const std::string& name, const std::string& description,
                               int (*run)(const Options&, const CommandContext&)) {
    const Declared<Options> declared = Add(name, description, run);
    commands_.back().is_offline = true;
    return declared;
  }

  // True if the command on the command line does not call the manager. REQUIRES: the app has parsed a command.
  bool is_chosen_offline() const { return Chosen().is_offline; }

  // Runs the command on the command line and returns its exit code. REQUIRES: as above.
  int RunChosen(const CommandContext& context) const { return Chosen().run(context); }

 private:
  struct Command {
    const CLI::App* app;
    std::function<int(const CommandContext&)> run;
    bool is_offline;
  };

  const Command& Chosen() const;

  CLI::App* const app_;
  std::vector<Command> commands_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_COMMAND_LIST_H_
