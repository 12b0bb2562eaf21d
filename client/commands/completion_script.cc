// SPDX-License-Identifier: Apache-2.0

#include "client/commands/completion_script.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

struct Option {
  std::vector<std::string> names;  // The names with their dashes; an argument has none.
  std::string description;
  bool takes_value = false;
  bool takes_file = false;
  std::vector<std::string> values;  // The only values that it may have; empty if all are allowed.
};

struct Command {
  std::string name;  // Empty for the program.
  std::string description;
  std::vector<Option> options;
};

// The type of an option with CLI::IsMember ends in "{a,b}".
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.rfind('{');
  if (begin == std::string::npos || !absl::EndsWith(type, "}")) return {};
  return absl::StrSplit(type.substr(begin + 1, type.size() - begin - 2), ',');
}

Command Describe(const CLI::App& app, const std::string& name) {
  Command command = {.name = name, .description = app.get_description(), .options = {}};
  for (const CLI::Option* const option : app.get_options()) {
    Option described = {.names = {},
                        .description = option->get_description(),
                        .takes_value = option->get_items_expected_max() > 0,
                        .takes_file = absl::StartsWith(option->get_option_text(), "FILE"),
                        .values = ValuesOf(*option)};
    for (const std::string& letter : option->get_snames()) described.names.push_back(absl::StrCat("-", letter));
    for (const std::string& word : option->get_lnames()) described.names.push_back(absl::StrCat("--", word));
    command.options.push_back(std::move(described));
  }
  return command;
}

// The program itself first.
std::vector<Command> DescribeAll(const CLI::App& app) {
  std::vector<Command> commands = {Describe(app, "")};
  for (const CLI::App* const command : app.get_subcommands({})) {
    commands.push_back(Describe(*command, command->get_name()));
  }
  return commands;
}

// The first sentence is enough for a line of help.
std::string FirstSentence(const std::string& description) {
  return description.substr(0, std::min(description.find('\n'), description.find(". ")));
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<std::string> NamesOf(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (!command.name.empty()) names.push_back(command.name);
  }
  return names;
}

std::vector<std::string> OptionNames(const Command& command) {
  std::vector<std::string> names;
  for (const Option& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// Patterns of a shell's case for "COMMAND OPTION": options of the program may follow any command.
std::string Patterns(const Command& command, const Option& option) {
  return absl::StrJoin(option.names, "|", [&](std::string* out, const std::string& name) {
    absl::StrAppend(out, command.name.empty() ? "*" : absl::StrCat("\"", command.name),
                    command.name.empty() ? "\" " : " ", name, "\"");
  });
}

// The lines of case "$command $previous", which call `words` or `files`. bash and zsh share them.
std::string ValueCases(const std::vector<Command>& commands, const std::string& words, const std::string& files) {
  std::string cases;
  for (const Command& command : commands) {
    for (const Option& option : command.options) {
      if (option.names.empty() || !option.takes_value) continue;
      absl::StrAppend(&cases, "    ", Patterns(command, option), ") ");
      if (!option.values.empty()) {
        absl::StrAppend(&cases, words, " ", absl::StrJoin(option.values, " "), "; return ;;\n");
      } else {
        absl::StrAppend(&cases, option.takes_file ? absl::StrCat(files, "; ") : "", "return ;;\n");
      }
    }
  }
  return cases;
}

// Options of the program that have a value, between which the command is found.
std::string SkippedOptions(const Command& program) {
  std::vector<std::string> names;
  for (const Option& option : program.options) {
    if (option.takes_value) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return absl::StrJoin(names, "|");
}

// Words that an argument of a command may be.
std::vector<std::string> ArgumentValues(const Command& command) {
  std::vector<std::string> values;
  for (const Option& option : command.options) {
    if (option.names.empty()) values.insert(values.end(), option.values.begin(), option.values.end());
  }
  return values;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  const std::vector<Command> commands = DescribeAll(app);
  std::string script = absl::StrCat(
      "# Completion of ", app.get_name(), " for bash: source <(", app.get_name(), " completion bash)\n_",
      app.get_name(), "_words() { COMPREPLY=($(compgen -W \"$*\" -- \"$current\")); }\n_", app.get_name(),
      "_files() { COMPREPLY=($(compgen -f -- \"$current\")); }\n_", app.get_name(),
      "() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in\n"
      "      ",
      SkippedOptions(commands[0]),
      ") ((i++)) ;;\n"
      "      -*) ;;\n"
      "      *) command=${COMP_WORDS[i]}; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$command $previous\" in\n",
      ValueCases(commands, absl::StrCat("_", app.get_name(), "_words"), absl::StrCat("_", app.get_name(), "_files")),
      "  esac\n"
      "  case \"$command $current\" in\n");
  const std::string words = absl::StrCat(") _", app.get_name(), "_words ");
  const std::string global = absl::StrJoin(OptionNames(commands[0]), " ");
  for (const Command& command : commands) {
    const std::string own = command.name.empty() ? "" : absl::StrCat(absl::StrJoin(OptionNames(command), " "), " ");
    absl::StrAppend(&script, "    \"", command.name, " -\"*", words, own, global, " ;;\n");
    const std::vector<std::string> values = ArgumentValues(command);
    if (!values.empty()) {
      absl::StrAppend(&script, "    \"", command.name, " \"*", words, absl::StrJoin(values, " "), " ;;\n");
    }
  }
  absl::StrAppend(&script, "    \" \"*", words, absl::StrJoin(NamesOf(commands), " "), " ;;\n  esac\n}\n");
  return absl::StrCat(script, "complete -o default -F _", app.get_name(), " ", app.get_name(), "\n");
}

std::string ZshCompletion(const CLI::App& app) {
  const std::vector<Command> commands = DescribeAll(app);
  const auto described = [](const std::string& name, const std::string& description) {
    return Quoted(absl::StrCat(name, ":", FirstSentence(description)));
  };
  const auto options_of = [&](const Command& command) {
    return absl::StrJoin(command.options, " ", [&](std::string* out, const Option& option) {
      for (const std::string& name : option.names) absl::StrAppend(out, described(name, option.description), " ");
    });
  };
  std::string script = absl::StrCat("#compdef ", app.get_name(), "\n# Completion of ", app.get_name(),
                                    " for zsh: source <(", app.get_name(), " completion zsh)\n_", app.get_name(),
                                    "() {\n"
                                    "  local current=${words[CURRENT]} previous=${words[CURRENT-1]} command= i\n"
                                    "  local -a options commands\n"
                                    "  for ((i = 2; i < CURRENT; i++)); do\n"
                                    "    case ${words[i]} in\n"
                                    "      ",
                                    SkippedOptions(commands[0]),
                                    ") ((i++)) ;;\n"
                                    "      -*) ;;\n"
                                    "      *) command=${words[i]}; break ;;\n"
                                    "    esac\n"
                                    "  done\n"
                                    "  case \"$command $previous\" in\n",
                                    ValueCases(commands, "compadd --", "_files"),
                                    "  esac\n"
                                    "  options=(",
                                    options_of(commands[0]), ")\n  case \"$command\" in\n");
  for (const Command& command : commands) {
    if (command.name.empty()) continue;
    const std::vector<std::string> values = ArgumentValues(command);
    absl::StrAppend(&script, "    ", command.name, ") options+=(", options_of(command), ")",
                    values.empty() ? "" : absl::StrCat("; compadd -- ", absl::StrJoin(values, " ")), " ;;\n");
  }
  absl::StrAppend(&script, "    '') commands=(");
  for (const Command& command : commands) {
    if (!command.name.empty()) absl::StrAppend(&script, described(command.name, command.description), " ");
  }
  return absl::StrCat(script,
                      ") ;;\n  esac\n"
                      "  if [[ $current == -* ]]; then _describe option options; return; fi\n"
                      "  if (( $#commands )); then _describe command commands; fi\n}\n"
                      // Where zsh has loaded this as a function of this name, that is the call.
                      "if [[ ${funcstack[1]} == _",
                      app.get_name(), " ]]; then _", app.get_name(), " \"$@\"; else compdef _", app.get_name(), " ",
                      app.get_name(), "; fi\n");
}

std::string FishCompletion(const CLI::App& app) {
  std::string script = absl::StrCat("# Completion of ", app.get_name(), " for fish: ", app.get_name(),
                                    " completion fish | source\ncomplete -c ", app.get_name(), " -f\n");
  for (const Command& command : DescribeAll(app)) {
    const std::string begin =
        command.name.empty()
            ? absl::StrCat("complete -c ", app.get_name())
            : absl::StrCat("complete -c ", app.get_name(), " -n '__fish_seen_subcommand_from ", command.name, "'");
    if (!command.name.empty()) {
      absl::StrAppend(&script, "complete -c ", app.get_name(), " -n __fish_use_subcommand -a ", command.name, " -d ",
                      Quoted(FirstSentence(command.description)), "\n");
    }
    for (const Option& option : command.options) {
      const std::string values = Quoted(absl::StrJoin(option.values, " "));
      if (option.names.empty()) {
        if (!option.values.empty()) absl::StrAppend(&script, begin, " -a ", values, "\n");
        continue;
      }
      absl::StrAppend(&script, begin);
      for (const std::string& name : option.names) {
        absl::StrAppend(&script, absl::StartsWith(name, "--") ? " -l " : " -s ",
                        name.substr(absl::StartsWith(name, "--") ? 2 : 1));
      }
      if (option.takes_value) absl::StrAppend(&script, option.takes_file ? " -rF" : " -x");
      if (!option.values.empty()) absl::StrAppend(&script, " -a ", values);
      absl::StrAppend(&script, " -d ", Quoted(FirstSentence(option.description)), "\n");
    }
  }
  return script;
}

}  // namespace quire
