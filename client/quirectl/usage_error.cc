// SPDX-License-Identifier: Apache-2.0

#include "client/quirectl/usage_error.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/nearest_flag.h"
#include "base/nearest_name.h"

namespace quire {
namespace {

// Our name for an option of `vllm bench serve`; "" for all other options.
std::string TranslateBenchOption(const std::string& name) {
  if (name == "--random-input-len") return "--input-tokens N";
  if (name == "--random-output-len") return "--output-tokens N";
  if (name == "--max-concurrency") return "--concurrency N, or with --rate --max-in-flight N";
  return "";
}

// "; did you mean NAME?", or "" when no known name is near.
std::string Suggest(const std::string& nearest) {
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// The long options of the command, which may be null, and the global ones.
std::vector<std::string> OptionNames(const CLI::App& app, const CLI::App* command) {
  std::vector<std::string> names;
  for (const CLI::App* owner : {command, &app}) {
    if (owner == nullptr) continue;
    for (const CLI::Option* option : owner->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
    }
  }
  return names;
}

// Suggests the option that the user probably meant. `command` may be null.
std::string SuggestOption(const CLI::App& app, const CLI::App* command, const std::string& typed) {
  const std::string name = typed.substr(0, typed.find('='));
  if (command != nullptr && command->get_name() == "bench") {
    if (const std::string translation = TranslateBenchOption(name); !translation.empty()) {
      return absl::StrCat("; that option of `vllm bench serve` is ", translation, " here");
    }
  }
  return Suggest(NearestFlag(name, OptionNames(app, command)));
}

// Explains words that no option and no argument took. REQUIRES: `stray` is not empty.
std::string ExplainStray(const CLI::App& app, const CLI::App* command, const std::vector<std::string>& stray) {
  std::string message = absl::StrCat("unexpected argument \"", stray[0], "\"");
  if (absl::StartsWith(stray[0], "--") && !absl::StrContains(stray[0], " ")) {
    return absl::StrCat(message, SuggestOption(app, command, stray[0]));
  }
  if (command == nullptr) {
    if (absl::StartsWith(stray[0], "-")) return message;
    return absl::StrCat("there is no command \"", stray[0], "\"", Suggest(NearestName(stray[0], CommandNames(app))));
  }
  const CLI::Option* text = command->get_option_no_throw("prompt");
  if (text == nullptr) text = command->get_option_no_throw("text");
  if (text == nullptr) return message;
  if (absl::StartsWith(stray[0], "-")) {
    if (absl::StrContains(stray[0], " ")) absl::StrAppend(&message, "; put -- before a text that begins with a dash");
  } else if (!text->empty()) {
    absl::StrAppend(&message, "; put a text of several words in quotes: quirectl ", command->get_name(), " \"",
                    text->results()[0], " ", absl::StrJoin(stray, " "), "\"");
  }
  return message;
}

}  // namespace

std::string DescribeUsageError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> commands =
      app.get_subcommands([](const CLI::App* command) { return command->parsed(); });
  const CLI::App* const command = commands.empty() ? nullptr : commands[0];
  std::string message = error.what();
  if (!message.empty()) message[0] = absl::ascii_tolower(message[0]);
  // The validators of option_range.h say "is VALUE, ..."; CLI11 puts "--option: " in front.
  absl::StrReplaceAll({{": is ", " is "}}, &message);
  const std::vector<std::string> stray = app.remaining(true);
  const bool is_about_stray = command == nullptr || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (is_about_stray && !stray.empty()) message = ExplainStray(app, command, stray);
  if (command == nullptr) return absl::StrCat(message, "\n  `quirectl --help` lists commands and options.");
  return absl::StrCat(message, "\n  `quirectl ", command->get_name(),
                      " --help` lists its options, and `quirectl --help` the options of all commands.");
}

std::string DescribeMissingValue(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<const CLI::App*> owners = app.get_subcommands([](const CLI::App* /*command*/) { return true; });
  owners.push_back(&app);
  for (int i = 1; i < argc && argv[i] != absl::string_view("--"); ++i) {
    absl::string_view name = argv[i];
    if (!absl::StartsWith(name, "--") || !absl::ConsumeSuffix(&name, "=")) continue;
    // Other arguments may be texts.
    const bool is_known = std::any_of(owners.begin(), owners.end(), [name](const CLI::App* owner) {
      return owner->get_option_no_throw(std::string(name)) != nullptr;
    });
    if (is_known) return absl::StrCat(argv[i], " has no value");
  }
  return "";
}

}  // namespace quire
