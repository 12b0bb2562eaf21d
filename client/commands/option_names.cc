// SPDX-License-Identifier: Apache-2.0

#include "client/commands/option_names.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/field_names.h"
#include "base/sampling_fields.h"

namespace quire {
namespace {

// Options besides the ones of kSamplingFields.
constexpr std::pair<absl::string_view, absl::string_view> kOptions[] = {
    {"add_special_tokens", "--no-special-tokens"},
    {"beam.diversity_penalty", "--diversity-penalty"},
    {"beam.early_stopping", "--early-stopping"},
    {"beam.length_penalty", "--length-penalty"},
    {"beam.num_groups", "--beam-groups"},
    {"beam.num_return_sequences", "--return"},
    {"beam.width", "--beam"},
    {"best_of", "--best-of"},
    {"bypass_prefix_cache", "--no-prefix-cache"},
    {"cache_salt", "--cache-salt"},
    {"chat", "the conversation"},
    {"chat.messages", "message"},
    {"chat.template_kwargs", "--template-kwargs"},
    {"echo", "--echo"},
    {"guided.choice", "--choice"},
    {"guided.choice.texts", "--choice"},
    {"guided.grammar", "--grammar"},
    {"guided.json_object", "--json-object"},
    {"guided.json_schema", "--json-schema"},
    {"guided.regex", "--regex"},
    {"logprobs", "--logprobs"},
    {"n", "--samples"},
    {"n or best_of", "--samples or --best-of"},
    {"on_disconnect", "--no-resume"},
    {"parse_special_tokens", "--no-parse-special"},
    {"priority", "--priority"},
    {"prompt_logprobs", "--prompt-logprobs"},
    {"request_id", "--request-id"},
    {"sampling.allowed_token_ids", "--allowed-token-ids"},
    {"sampling.bad_words", "--bad-word"},
    {"sampling.logit_bias", "--logit-bias"},
    {"sampling.seed", "--seed"},
    {"skip_special_tokens", "--keep-special-tokens"},
    {"stopping.ignore_eos", "--ignore-eos"},
    {"stopping.include_stop", "--include-stop"},
    {"stopping.max_tokens", "--max-tokens"},
    {"stopping.min_tokens", "--min-tokens"},
    {"stopping.stop", "--stop"},
    {"stopping.stop_token_ids", "--stop-token-ids"},
    {"tenant", "--tenant"},
    {"text", "the prompt"},
    {"token_ids.ids", "--prompt-ids"},
};

// Returns the option for a path such as "stopping.stop[2]", or nothing.
std::optional<std::string> OptionOf(absl::string_view path) {
  const absl::string_view field = path.substr(0, path.find('['));
  for (const auto& [name, option] : kOptions) {
    if (field == name) return absl::StrCat(option, path.substr(field.size()));
  }
  for (const SamplingField& number : kSamplingFields) {
    if (field == absl::StrCat("sampling.", number.name)) return number.OptionName();
  }
  return std::nullopt;
}

// `line` is "field: description" or "field[index]: description", or something else, of which only the names of fields
// within change.
std::string WithOptionName(absl::string_view line) {
  const size_t colon = line.find(": ");
  const std::optional<std::string> option = colon == line.npos ? std::nullopt : OptionOf(line.substr(0, colon));
  if (!option.has_value()) return RenameFields(line, OptionOf);
  // Most descriptions continue the sentence, such as "has 7 tokens". For guides they may be whole sentences.
  const absl::string_view description = line.substr(colon + 2);
  const bool goes_on = !absl::StartsWith(line, "guided.") || absl::StartsWith(description, "has ") ||
                       absl::StartsWith(description, "is ") || absl::StartsWith(description, "needs ");
  return absl::StrCat(*option, goes_on ? " " : ": ", RenameFields(description, OptionOf));
}

}  // namespace

absl::Status WithOptionNames(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument && status.code() != absl::StatusCode::kFailedPrecondition) {
    return status;
  }
  constexpr char kBetween[] = "\n  ";  // See FromRpcStatus.
  std::vector<std::string> lines = absl::StrSplit(status.message(), kBetween);
  for (std::string& line : lines) line = WithOptionName(line);
  return absl::Status(status.code(), absl::StrJoin(lines, kBetween));
}

}  // namespace quire
