#include "client/commands/guide_options.h"

#include "absl/status/statusor.h"
#include "base/read_file.h"
#include "base/status.h"

namespace quire {
namespace {

absl::StatusOr<std::string> TextOrFile(const std::string& value) {
  if (value.empty() || value[0] != '@') return value;
  return ReadFile(value.substr(1));
}

}  // namespace

absl::Status GuideOptions::Set(v1::GenerateRequest* request) const {
  const int num_given = !json_schema.empty() + json_object + !regex.empty() + !choices.empty() + !grammar.empty();
  if (num_given == 0) return absl::OkStatus();
  if (num_given > 1) {
    return absl::InvalidArgumentError("give one of --json-schema, --json-object, --regex, --choice and --grammar");
  }
  v1::Guide* const guide = request->mutable_guided();
  if (json_object) guide->set_json_object(true);
  for (const std::string& choice : choices) guide->mutable_choice()->add_texts(choice);
  if (!regex.empty()) guide->set_regex(regex);
  if (!json_schema.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOrFile(json_schema));
    guide->set_json_schema(text);
  }
  if (!grammar.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOrFile(grammar));
    guide->set_grammar(text);
  }
  return absl::OkStatus();
}

void AddGuideOptions(CLI::App* command, GuideOptions* options) {
  const char* const group = "What the answer must be";
  command->add_option("--json-schema", options->json_schema, "A value that fits this JSON schema; @FILE reads it")
      ->option_text("SCHEMA")
      ->group(group);
  command->add_flag("--json-object", options->json_object, "A JSON object")->group(group);
  command->add_option("--regex", options->regex, "A text that matches this regular expression as a whole")
      ->option_text("REGEX")
      ->group(group);
  command->add_option("--choice", options->choices, "This text, or one of several; may be repeated")
      ->allow_extra_args(false)
      ->option_text("TEXT")
      ->group(group);
  command->add_option("--grammar", options->grammar, "A text of this grammar in GBNF or Lark; @FILE reads it")
      ->option_text("GRAMMAR")
      ->group(group);
}

}  // namespace quire
