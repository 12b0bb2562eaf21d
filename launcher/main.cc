// SPDX-License-Identifier: Apache-2.0

// quire: starts the other programs for one person on one machine.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/program_main.h"
#include "base/version.h"
#include "launcher/conductor.h"
#include "launcher/part.h"
#include "launcher/serve_options.h"

namespace quire {
namespace {

constexpr char kHelp[] =
    "quire serves a large language model on this machine.\n"
    "\n"
    "Usage: quire COMMAND\n"
    "\n"
    "  serve MODEL     serves a model until Ctrl-C: a chat page, and the interfaces of OpenAI and Anthropic\n"
    "  help [COMMAND]  prints this, or the flags of a command\n"
    "  version         prints the version, as --version does\n"
    "\n"
    "The programs that it starts are quire-worker, quire-manager, quire-openai and quire-download. quirectl asks\n"
    "what they do.\n";

int Refuse(const std::string& message) {
  std::fprintf(stderr, "quire: %s\n", message.c_str());
  return kExitWrongUsage;
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

int Serve(absl::Span<const char* const> arguments) {
  std::error_code error;
  const std::string bin = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return Refuse(absl::StrCat("cannot find its own folder: ", error.message()));
  const absl::StatusOr<CommandLine<ServeOptions>> line =
      ParseServeCommandLine(arguments, [&bin](PartId id) { return FlagsInHelp(PathOf(bin, id)); });
  if (!line.ok()) return Refuse(std::string(line.status().message()));
  if (line->text.has_value()) return Print(*line->text);
  return Conductor(line->options, bin).Run();
}

int Main(absl::Span<const char* const> arguments) {
  if (arguments.empty()) {
    std::fputs(kHelp, stderr);
    return kExitWrongUsage;
  }
  const std::string command = arguments[0];
  arguments.remove_prefix(1);
  if (command == "serve") return Serve(arguments);
  if (command == "version" || command == "--version") return Print(absl::StrCat("quire ", kVersion, "\n"));
  if (command == "help" && !arguments.empty()) {
    if (absl::string_view(arguments[0]) == "serve") return Serve({"--help"});
    return Refuse(absl::StrCat("there is no command ", arguments[0], "; see quire help"));
  }
  if (command == "help" || command == "--help" || command == "-h") return Print(kHelp);
  const std::string nearest = NearestName(command, {"serve", "help", "version"});
  return Refuse(absl::StrCat("there is no command ", command, ";",
                             nearest.empty() ? " see quire help" : absl::StrCat(" did you mean ", nearest, "?")));
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // It must survive the reader of its output.
  const int code = quire::Main({argv + 1, static_cast<size_t>(argc - 1)});
  std::fflush(nullptr);
  _exit(code);  // A call to the gateway may still run on its thread.
}
