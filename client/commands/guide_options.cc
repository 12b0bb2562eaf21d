// SPDX-License-Identifier: Apache-2.0

#include "client/commands/guide_options.h"

#include "absl/status/statusor.h"
#include "base/read_file.h"
#include "base/status.h"
#include "client/commands/shared_options.h"

namespace quire {
namespace {

// Returns the text of an option, or of the file that it names. An empty text says nothing about the output.
absl::StatusOr<std::string> ReadGuide(const char* option, const std::string& value) {
  if (value.empty()) return InvalidArgument(option, " is empty");
  if (value[0] != '@') return value;
  QUIRE_ASSIGN_OR_RETURN(std::string text, ReadFile(value.substr(1)));
  if (text.empty()) return InvalidArgument(option, " names the file ", value.substr(1), ", which is empty");
  return text;
}

}  // namespace

absl::Status GuideOptions::Set(v1::GenerateRequest* request) const {
  const bool has_schema = json_schema_option->count() > 0;
  const bool has_regex = regex_option->count() > 0;
  const bool has_grammar = grammar_option->count() > 0;
  const int num_given = has_schema + json_object + has_regex + !choices.empty() + has_grammar;
  if (num_given == 0) return absl::OkStatus();
  if (num_given > 1) {
    return absl::InvalidArgumentError("give one of --json-schema, --json-object, --regex, --choice and --grammar");
  }
  v1::Guide* const guide = request->mutable_guided();
  if (json_object) guide->set_json_object(true);
  for (const std::string& choice : choices) guide->mutable_choice()->add_texts(choice);
  if (has_regex) {
    if (regex.empty()) return absl::InvalidArgumentError("--regex is empty");
    guide->set_regex(regex);
  }
  if (has_schema) {
    QUIRE_ASSIGN_OR_RETURN(*guide->mutable_json_schema(), ReadGuide("--json-schema", json_schema));
  }
  if (has_grammar) {
    QUIRE_ASSIGN_OR_RETURN(*guide->mutable_grammar(), ReadGuide("--grammar", grammar));
  }
  return absl::OkStatus();
}

std::string GuideOptions::Description() const {
  if (json_object) return "a whole JSON object";
  if (!json_schema.empty()) return "a whole value of the JSON schema";
  if (!regex.empty()) return "a text that matches the regular expression as a whole";
  if (!choices.empty()) return "one of the choices";
  if (!grammar.empty()) return "a whole text of the grammar";
  return "";
}

void AddGuideOptions(CLI::App* command, GuideOptions* options) {
  const char* const group = "What the answer must be";
  options->json_schema_option = AddOption(command, group, "--json-schema", &options->json_schema, "SCHEMA",
                                          "A value that fits this JSON schema; @FILE reads it");
  command->add_flag("--json-object", options->json_object, "A JSON object")->group(group);
  options->regex_option = AddOption(command, group, "--regex", &options->regex, "REGEX",
                                    "A text that matches this regular expression as a whole");
  AddOption(command, group, "--choice", &options->choices, "TEXT", "This text, or one of several; may be repeated")
      ->allow_extra_args(false);
  options->grammar_option = AddOption(command, group, "--grammar", &options->grammar, "GRAMMAR",
                                      "A text of this grammar in GBNF or Lark; @FILE reads it");
}

}  // namespace quire
