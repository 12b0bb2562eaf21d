// SPDX-License-Identifier: Apache-2.0

#include "client/commands/option_names.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace quire {
namespace {

constexpr std::pair<absl::string_view, absl::string_view> kOptions[] = {
    {"beam.diversity_penalty", "--diversity-penalty"},
    {"beam.early_stopping", "--early-stopping"},
    {"beam.length_penalty", "--length-penalty"},
    {"beam.num_groups", "--beam-groups"},
    {"beam.num_return_sequences", "--return"},
    {"beam.width", "--beam"},
    {"best_of", "--best-of"},
    {"cache_salt", "--cache-salt"},
    {"chat.template_kwargs", "--template-kwargs"},
    {"guided.choice", "--choice"},
    {"guided.grammar", "--grammar"},
    {"guided.json_schema", "--json-schema"},
    {"guided.regex", "--regex"},
    {"logprobs", "--logprobs"},
    {"n", "--samples"},
    {"priority", "--priority"},
    {"prompt_logprobs", "--prompt-logprobs"},
    {"request_id", "--request-id"},
    {"sampling.allowed_token_ids", "--allowed-token-ids"},
    {"sampling.bad_words", "--bad-word"},
    {"sampling.frequency_penalty", "--frequency-penalty"},
    {"sampling.logit_bias", "--logit-bias"},
    {"sampling.min_p", "--min-p"},
    {"sampling.presence_penalty", "--presence-penalty"},
    {"sampling.repetition_penalty", "--repetition-penalty"},
    {"sampling.seed", "--seed"},
    {"sampling.temperature", "--temperature"},
    {"sampling.top_k", "--top-k"},
    {"sampling.top_p", "--top-p"},
    {"stopping.max_tokens", "--max-tokens"},
    {"stopping.min_tokens", "--min-tokens"},
    {"stopping.stop", "--stop"},
    {"stopping.stop_token_ids", "--stop-token-ids"},
    {"tenant", "--tenant"},
    {"text", "the prompt"},
    {"token_ids.ids", "--prompt-ids"},
};

// `line` is "field: description" or "field[index]: description", or something else, which stays as it is.
std::string WithOptionName(absl::string_view line) {
  const size_t colon = line.find(": ");
  if (colon == line.npos) return std::string(line);
  const absl::string_view path = line.substr(0, colon);
  const absl::string_view field = path.substr(0, path.find('['));
  for (const auto& [name, option] : kOptions) {
    if (field == name) return absl::StrCat(option, path.substr(field.size()), line.substr(colon + 1));
  }
  return std::string(line);
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
