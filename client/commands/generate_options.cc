// SPDX-License-Identifier: Apache-2.0

#include "client/commands/generate_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/message_numbers.h"
#include "base/status.h"
#include "client/commands/option_names.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/library/utf8.h"
#include "client/terminal/input.h"

namespace quire {
namespace {

// An option that may be given several times. It takes one value each time, so that it does not swallow the prompt
// behind it.
template <typename T>
CLI::Option* AddRepeatable(CLI::App* command, const char* group, const char* flags, std::vector<T>* values,
                           const char* text, const char* help) {
  return AddOption(command, group, flags, values, text, help)->allow_extra_args(false);
}

void AddPromptOptions(CLI::App* command, GenerateOptions* options) {
  options->prompt_option = AddOption(command, "prompt", &options->prompt, " ",
                                     "The prompt; \"-\" reads standard input; \"\" starts from nothing");
  AddOption(command, "--prompt-ids", &options->prompt_ids, "ID,...", "Token ids as the prompt instead of text")
      ->delimiter(',')
      ->check(InRange<uint32_t>());
  AddOption(command, "-n,--max-tokens", &options->max_tokens, "N",
            "Largest number of tokens to generate [the model's default or 128, or what the context leaves]")
      ->check(InRange<uint32_t>());
  AddOption(command, "--timeout", &options->timeout_s, "SECONDS [600]", "Cancel the call after this time")
      ->transform(InSeconds<double>(0.001, 1e6));
  command->add_flag("--no-resume", options->no_resume,
                    "End the request when the connection breaks, instead of resuming it");
  command->add_flag("--echo", options->echo, "Print the prompt first");
  command->add_flag("--usage", options->show_usage, "Print token counts to standard error at the end");
}

void AddSamplingOptions(CLI::App* command, GenerateOptions* options) {
  const char* const group = "Sampling";
  for (size_t i = 0; i < std::size(kSamplingFields); ++i) {
    const SamplingField& field = kSamplingFields[i];
    const std::string flags =
        absl::StrCat(field.short_option, *field.short_option != '\0' ? "," : "", field.OptionName());
    if (field.counts_tokens()) {
      AddOption(command, group, flags.c_str(), &options->sampling[i].count, field.value_text, field.help)
          ->check(InRange<uint32_t>());
    } else {
      AddOption(command, group, flags.c_str(), &options->sampling[i].number, field.value_text, field.help)
          ->check(IsNumber());
    }
  }
  AddOption(command, group, "--seed", &options->seed, "SEED",
            "Make the draws repeatable [the manager chooses a random seed]")
      ->check(InRange<uint64_t>());
  AddRepeatable(command, group, "--logit-bias", &options->logit_bias, "TOKEN_ID=BIAS",
                "Add this to the token's logit, -100 .. 100; may be repeated");
  AddRepeatable(command, group, "--allowed-token-ids", &options->allowed_token_ids, "ID,...",
                "Draw only from these tokens")
      ->delimiter(',')
      ->check(InRange<uint32_t>());
  AddRepeatable(command, group, "--bad-word", &options->bad_words, "TEXT", "Never generate this text; may be repeated");
}

void AddSampleOptions(CLI::App* command, GenerateOptions* options) {
  const char* const group = "Several answers";
  AddOption(command, group, "--samples", &options->num_samples, "N",
            "Draw N answers; sample i uses the seed plus i [1]")
      ->check(InRange<uint32_t>());
  AddOption(command, group, "--best-of", &options->best_of, "N",
            "Draw N answers and print the --samples best by mean logprob")
      ->check(InRange<uint32_t>());
  CLI::Option* const beam = AddOption(command, group, "--beam", &options->beam_width, "WIDTH",
                                      "Search for the likeliest answers with WIDTH beams")
                                ->check(InRange<uint32_t>());
  AddOption(command, group, "--return", &options->num_return, "N", "Print N of the answers that the search finds [1]")
      ->check(InRange<uint32_t>())
      ->needs(beam);
  AddOption(command, group, "--length-penalty", &options->length_penalty, "X",
            "Divide a score by the length to this power [1]")
      ->check(IsNumber())
      ->needs(beam);
  AddOption(command, group, "--early-stopping", &options->early_stopping, "heuristic|when-full|never [heuristic]",
            "When a search that has enough answers ends")
      ->check(CLI::IsMember({"heuristic", "when-full", "never"}))
      ->needs(beam);
  AddOption(command, group, "--beam-groups", &options->num_groups, "N",
            "Divide the beams into N groups with different answers [1]")
      ->check(InRange<uint32_t>())
      ->needs(beam);
  AddOption(command, group, "--diversity-penalty", &options->diversity_penalty, "X",
            "Lower the logprob of tokens that earlier groups chose by this [0]")
      ->check(IsNumber())
      ->needs(beam);
}

void AddStoppingOptions(CLI::App* command, GenerateOptions* options) {
  const char* const group = "Stopping";
  AddOption(command, group, "--min-tokens", &options->min_tokens, "N", "Smallest number of tokens to generate [0]")
      ->check(InRange<uint32_t>());
  AddRepeatable(command, group, "--stop", &options->stop, "TEXT", "End at this text; may be repeated");
  AddRepeatable(command, group, "--stop-token-ids", &options->stop_token_ids, "ID,...", "End at one of these tokens")
      ->delimiter(',')
      ->check(InRange<uint32_t>());
  command->add_flag("--include-stop", options->include_stop, "Print the stop text as well")->group(group);
  command->add_flag("--ignore-eos", options->ignore_eos, "Continue after the model's end token")->group(group);
}

void AddOtherOptions(CLI::App* command, GenerateOptions* options) {
  const char* const group = "More";
  AddOption(command, group, "--logprobs", &options->logprobs, "K",
            "Print one line per token: its logprob, its rank and the K likeliest tokens")
      ->check(InRange<uint32_t>());
  AddOption(command, group, "--prompt-logprobs", &options->prompt_logprobs, "K",
            "Print the same for the prompt's tokens")
      ->check(InRange<uint32_t>());
  AddOption(command, group, "--priority", &options->priority, "N",
            "The manager serves smaller numbers first under --policy=priority [0]")
      ->check(InRange<int32_t>());
  AddOption(command, group, "--tenant", &options->tenant, "NAME", "Tenant of the request, for --policy=fair-share");
  AddOption(command, group, "--cache-salt", &options->cache_salt, "TEXT",
            "Share cached prefixes only with requests that have the same salt");
  command->add_flag("--no-prefix-cache", options->no_prefix_cache, "Neither use cached prefixes nor store any")
      ->group(group);
  AddOption(command, group, "--request-id", &options->request_id, "NAME", "Name of the request, for abort and logs");
  command->add_flag("--no-special-tokens", options->no_special_tokens, "Do not add the begin-of-sequence token")
      ->group(group);
  command
      ->add_flag("--no-parse-special", options->no_parse_special,
                 "Take text that spells a special token as ordinary text")
      ->group(group);
  command->add_flag("--keep-special-tokens", options->keep_special_tokens, "Print special tokens as text")
      ->group(group);
}

// True if standard input is a pipe or a file, so that the caller probably means it to be read.
bool HasPipedInput() {
  struct stat input;
  return fstat(STDIN_FILENO, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode));
}

// At most one of the prompt and --prompt-ids may be given. Without both the request starts from nothing, unless
// standard input suggests that the user forgot the "-".
absl::Status CheckPrompt(const GenerateOptions& options) {
  const bool has_text = options.prompt_option->count() > 0;
  if (!options.prompt_ids.empty()) {
    return has_text ? absl::InvalidArgumentError("give a prompt or --prompt-ids, not both") : absl::OkStatus();
  }
  if (has_text || !HasPipedInput()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "there is no prompt, and standard input is a pipe or a file: \"-\" as the prompt reads it, \"\" starts from "
      "nothing");
}

absl::Status SetSampling(const GenerateOptions& options, v1::SamplingParams* sampling) {
  for (size_t i = 0; i < std::size(kSamplingFields); ++i) {
    const auto& [number, count] = options.sampling[i];
    if (number.has_value()) SetNumber(kSamplingFields[i].name, *number, sampling);
    if (count.has_value()) SetNumber(kSamplingFields[i].name, *count, sampling);
  }
  if (options.seed) sampling->set_seed(*options.seed);
  for (const std::string& entry : options.logit_bias) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    uint32_t token = 0;
    float bias = 0;
    if (!absl::SimpleAtoi(parts.first, &token) || !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(absl::StrCat("--logit-bias is \"", entry, "\", not TOKEN_ID=BIAS"));
    }
    (*sampling->mutable_logit_bias())[token] = bias;
  }
  sampling->mutable_allowed_token_ids()->Add(options.allowed_token_ids.begin(), options.allowed_token_ids.end());
  sampling->mutable_bad_words()->Add(options.bad_words.begin(), options.bad_words.end());
  return absl::OkStatus();
}

void SetBeam(const GenerateOptions& options, v1::BeamParams* beam) {
  beam->set_width(*options.beam_width);
  if (options.length_penalty) beam->set_length_penalty(*options.length_penalty);
  if (options.early_stopping == "when-full") beam->set_early_stopping(v1::EARLY_STOPPING_WHEN_FULL);
  if (options.early_stopping == "never") beam->set_early_stopping(v1::EARLY_STOPPING_NEVER);
  if (options.num_return) beam->set_num_return_sequences(*options.num_return);
  if (options.num_groups) beam->set_num_groups(*options.num_groups);
  if (options.diversity_penalty) beam->set_diversity_penalty(*options.diversity_penalty);
}

// A name that no other request has.
std::string RandomName() {
  std::random_device device;
  return absl::StrFormat("quirectl-%08x%08x%08x%08x", device(), device(), device(), device());
}

void SetStopping(const GenerateOptions& options, v1::StoppingParams* stopping) {
  if (options.max_tokens) stopping->set_max_tokens(*options.max_tokens);
  if (options.min_tokens) stopping->set_min_tokens(*options.min_tokens);
  stopping->set_ignore_eos(options.ignore_eos);
  stopping->set_include_stop(options.include_stop);
  stopping->mutable_stop()->Add(options.stop.begin(), options.stop.end());
  stopping->mutable_stop_token_ids()->Add(options.stop_token_ids.begin(), options.stop_token_ids.end());
}

}  // namespace

void AddGenerateOptions(CLI::App* command, GenerateOptions* options) {
  AddPromptOptions(command, options);
  AddSamplingOptions(command, options);
  AddGuideOptions(command, &options->guide);
  AddSampleOptions(command, options);
  AddStoppingOptions(command, options);
  AddOtherOptions(command, options);
}

absl::StatusOr<v1::GenerateRequest> GenerateOptions::MakeRequest() const {
  v1::GenerateRequest request;
  request.set_request_id(request_id);
  if (!no_resume) {
    request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
    if (request_id.empty()) request.set_request_id(RandomName());
  }
  QUIRE_RETURN_IF_ERROR(CheckPrompt(*this));
  if (!prompt_ids.empty()) {
    request.mutable_token_ids()->mutable_ids()->Add(prompt_ids.begin(), prompt_ids.end());
  } else {
    QUIRE_ASSIGN_OR_RETURN(*request.mutable_text(), ReadText(prompt, "prompt"));
  }
  request.set_echo(echo);
  if (no_special_tokens) request.set_add_special_tokens(false);
  if (no_parse_special) request.set_parse_special_tokens(false);
  if (keep_special_tokens) request.set_skip_special_tokens(false);
  if (priority) request.set_priority(*priority);
  if (logprobs) request.set_logprobs(*logprobs);
  if (prompt_logprobs) request.set_prompt_logprobs(*prompt_logprobs);

  if (num_samples) request.set_n(*num_samples);
  if (best_of) request.set_best_of(*best_of);
  if (beam_width) SetBeam(*this, request.mutable_beam());
  request.set_cache_salt(cache_salt);
  if (no_prefix_cache) request.set_bypass_prefix_cache(true);
  request.set_tenant(tenant);
  QUIRE_RETURN_IF_ERROR(SetSampling(*this, request.mutable_sampling()));
  SetStopping(*this, request.mutable_stopping());
  QUIRE_RETURN_IF_ERROR(guide.Set(&request));
  QUIRE_RETURN_IF_ERROR(WithOptionNames(CheckUtf8Fields(request)));
  return request;
}

}  // namespace quire
