// SPDX-License-Identifier: Apache-2.0

// quirectl: the command line of a Quire manager.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/lock_checks.h"
#include "base/version.h"
#include "client/commands/command_list.h"
#include "client/commands/commands.h"
#include "client/quirectl/global_options.h"
#include "client/quirectl/help_formatter.h"
#include "client/quirectl/usage_error.h"
#include "client/terminal/output.h"
#include "client/terminal/terminal.h"
#include "google/protobuf/stubs/logging.h"

namespace quire {
namespace {

constexpr char kDescription[] =
    "Talk to a Quire manager.\n"
    "\n"
    "Examples:\n"
    "  quirectl generate \"Once upon a time\" -n 200\n"
    "  quirectl generate \"Once upon a time\" -t 0 --stop \"The end\" --usage\n"
    "  quirectl generate - -n 50 -o json < prompt.txt\n"
    "  quirectl chat --system \"Be brief.\"\n"
    "  quirectl tokenize \"Once upon a time\"\n"
    "  quirectl embed \"A fox.\" \"A dog.\"\n"
    "  quirectl status\n"
    "  quirectl top\n"
    "  quirectl bench --rate 10 --duration 60\n"
    "  quirectl blocks --map\n"
    "  quirectl pin --ttl 3600 - < system_prompt.txt\n"
    "  quirectl health readiness && echo ready\n"
    "  quirectl doctor\n"
    "  source <(quirectl completion bash)\n";

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 unavailable (try again), 4 rejected by the manager, 5 the stream "
    "broke "
    "or the request was aborted after text had been printed, 130 Ctrl-C.\n"
    "`quirectl COMMAND --help` describes a command.";

struct HelpOptions {
  std::string command;
};

// App::help would print the help of the command on the command line, which is this one.
std::string HelpOf(const CLI::App& app, const std::string& name) {
  return app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
}

int RunHelp(const HelpOptions& options, const CommandContext& context) {
  std::string help = HelpOf(context.program, "quirectl");
  if (!options.command.empty()) {
    const auto found = context.program.get_subcommands(
        [&](const CLI::App* command) { return command->get_name() == options.command; });
    if (found.empty()) return ReportUsage(absl::StrCat("there is no command \"", options.command, "\""));
    help = HelpOf(*found[0], absl::StrCat("quirectl ", options.command));
  }
  std::fputs(help.c_str(), stdout);
  return kExitOk;
}

int RunVersion(const NoOptions& /*options*/, const CommandContext& /*context*/) {
  std::printf("quirectl %s\n", kVersion);
  return kExitOk;
}

// Users try these as options and as commands, so both work.
void AddHelpAndVersion(CommandList* list) {
  const auto [command, options] = list->AddOffline("help", "Print the help of quirectl or of a command", RunHelp);
  command->add_option("command", options->command, "The command")->option_text(" ");
  list->AddOffline("version", "Print the version and exit", RunVersion);
}

void AddCommands(CommandList* list) {
  AddGenerateCommand(list);
  AddChatCommand(list);
  AddBenchCommand(list);
  AddTokenizeCommand(list);
  AddDetokenizeCommand(list);
  AddEmbedCommand(list);
  AddAbortCommand(list);
  AddHealthCommand(list);
  AddCompletionCommand(list);
  AddDoctorCommand(list);
  AddModelCommand(list);
  AddStatusCommand(list);
  AddExplainCommand(list);
  AddPinCommand(list);
  AddUnpinCommand(list);
  AddTopCommand(list);
  AddRequestsCommand(list);
  AddTreeCommand(list);
  AddBlocksCommand(list);
  AddAuditCommand(list);
  AddDrainCommand(list);
  AddUndrainCommand(list);
  AddFlushCommand(list);
  AddHelpAndVersion(list);
}

// Libraries print their own lines to standard error. Everything of interest in them is in a status as well.
void SilenceLibraries() {
  google::protobuf::SetLogHandler(nullptr);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "quirectl");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.formatter(std::make_shared<HelpFormatter>(DescribeTerminal().columns));
  app.set_version_flag("--version", absl::StrCat("quirectl ", kVersion), "Print the version and exit");
  GlobalOptions options(&app);
  CommandList commands(&app);
  AddCommands(&commands);
  if (const std::string missing = DescribeMissingValue(app, argc, argv); !missing.empty()) return ReportUsage(missing);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return ReportUsage(DescribeUsageError(app, error));
    return app.exit(error);  // Prints the help or the version.
  }
  if (!commands.is_chosen_offline()) {
    if (const absl::Status valid = options.CheckConnection(); !valid.ok()) return ReportUsage(valid.message());
  }
  return commands.RunChosen({options.client(), options.format(), app});
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  // A reader that went away ends quirectl without a message, whatever the caller has set for the signal.
  std::signal(SIGPIPE, SIG_DFL);
  quire::SkipLockChecks();
  quire::ReserveStandardStreams();
  quire::SilenceLibraries();
  return quire::EndOutput(quire::Main(argc, argv));
}
