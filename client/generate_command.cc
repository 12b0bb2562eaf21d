#include "client/generate_command.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/input.h"
#include "client/interrupt.h"
#include "client/sample_printer.h"
#include "client/utf8.h"

namespace quire {
namespace {

constexpr uint32_t kDefaultMaxTokens = 128;

// Of the whole request; `last` is its last response.
void PrintUsage(const v1::GenerateResponse& last, bool has_one_sample, absl::Duration duration) {
  const v1::Usage& usage = last.usage();
  const std::string cached = usage.cached_tokens() > 0 ? absl::StrCat(", ", usage.cached_tokens(), " cached") : "";
  const std::string end = has_one_sample ? absl::StrCat(", finished: ", EndInWords(last)) : "";
  // Behind the text where both go to the same place.
  FlushOutput();
  std::fprintf(stderr, "[%u prompt + %u generated tokens in %s%s%s]\n", usage.prompt_tokens(),
               usage.completion_tokens(), absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1))).c_str(),
               cached.c_str(), end.c_str());
}

}  // namespace

GenerateCommand::GenerateCommand(CLI::App* command) {
  command->description("Continue a prompt and print the text as it is generated.");
  // One value for each time the flag is given, so that none swallows the prompt behind it.
  const auto repeatable = [command](const char* flags, auto& values, const char* help) {
    return command->add_option(flags, values, help)->allow_extra_args(false);
  };
  command->add_option("prompt", prompt_, "The prompt; \"-\" reads standard input; empty starts from nothing")
      ->option_text(" ");
  command->add_option("--prompt-ids", prompt_ids_, "Token ids as the prompt instead of text")
      ->delimiter(',')
      ->option_text("ID,...");
  command->add_option("-n,--max-tokens", max_tokens_, "Generated tokens at most [128, or what the context leaves]");
  command->add_option("--timeout", timeout_s_, "Seconds until the call is given up [600]")
      ->check(CLI::Range(0.001, 1e6))
      ->option_text("SECONDS");
  command->add_flag("--echo", echo_, "Print the prompt first");
  command->add_flag("--usage", show_usage_, "Print token counts to standard error at the end");

  const char* sampling = "Sampling";
  command->add_option("-t,--temperature", temperature_, "0 is greedy [1]")->group(sampling);
  command->add_option("--top-k", top_k_, "Keep the k likeliest tokens, of the vocabulary at most [all]")
      ->group(sampling);
  command->add_option("--top-p", top_p_, "Keep the likeliest tokens that reach this probability [1]")->group(sampling);
  command->add_option("--min-p", min_p_, "Drop tokens below this share of the likeliest one [0]")->group(sampling);
  command->add_option("--presence-penalty", presence_penalty_, "-2 .. 2 [0]")->group(sampling);
  command->add_option("--frequency-penalty", frequency_penalty_, "-2 .. 2 [0]")->group(sampling);
  command->add_option("--repetition-penalty", repetition_penalty_, "0.01 .. 10 [1]")->group(sampling);
  command->add_option("--seed", seed_, "Makes draws repeatable [chosen by the server]")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text[0] == '-' ? absl::StrCat("is ", text, ", must be at least 0; leave it out for a random one")
                                  : std::string();
          },
          ""))
      ->group(sampling);
  repeatable("--logit-bias", logit_bias_, "Added to a token's logit, -100 .. 100, repeatable")
      ->option_text("TOKEN_ID=BIAS")
      ->group(sampling);
  repeatable("--allowed-token-ids", allowed_token_ids_, "Pick only these")
      ->delimiter(',')
      ->option_text("ID,...")
      ->group(sampling);
  repeatable("--bad-word", bad_words_, "Never generate this text, repeatable")->option_text("TEXT")->group(sampling);

  const char* several = "Several answers";
  command->add_option("--samples", num_samples_, "Draw so many answers; sample i has the seed plus i [1]")
      ->option_text("N")
      ->group(several);
  command->add_option("--best-of", best_of_, "Draw so many and print the --samples best by mean logprob")
      ->option_text("N")
      ->group(several);
  CLI::Option* beam = command->add_option("--beam", beam_width_, "Search for the likeliest answers with so many beams")
                          ->option_text("WIDTH")
                          ->group(several);
  command->add_option("--return", num_return_, "Print so many of the answers that the search finds [1]")
      ->option_text("N")
      ->needs(beam)
      ->group(several);
  command->add_option("--length-penalty", length_penalty_, "Scores are divided by length to this power [1]")
      ->option_text("X")
      ->needs(beam)
      ->group(several);
  command->add_option("--early-stopping", early_stopping_, "When a search that has enough answers ends")
      ->check(CLI::IsMember({"heuristic", "when-full", "never"}))
      ->option_text("heuristic|when-full|never [heuristic]")
      ->needs(beam)
      ->group(several);
  command->add_option("--beam-groups", num_groups_, "Groups of beams that differ by --diversity-penalty [1]")
      ->option_text("N")
      ->needs(beam)
      ->group(several);
  command->add_option("--diversity-penalty", diversity_penalty_, "Off the logprob of tokens of earlier groups [0]")
      ->option_text("X")
      ->needs(beam)
      ->group(several);

  const char* stopping = "Stopping";
  command->add_option("--min-tokens", min_tokens_, "Do not end before this many tokens [0]")->group(stopping);
  repeatable("--stop", stop_, "End at this text, repeatable")->option_text("TEXT")->group(stopping);
  repeatable("--stop-token-ids", stop_token_ids_, "End at one of these tokens")
      ->delimiter(',')
      ->option_text("ID,...")
      ->group(stopping);
  command->add_flag("--include-stop", include_stop_, "Print the stop text as well")->group(stopping);
  command->add_flag("--ignore-eos", ignore_eos_, "Go on after the model's end token")->group(stopping);

  const char* more = "More";
  command->add_option("--logprobs", logprobs_, "One line per token: its logprob, rank, and the k likeliest")
      ->option_text("K")
      ->group(more);
  command->add_option("--prompt-logprobs", prompt_logprobs_, "The same for the prompt's tokens")
      ->option_text("K")
      ->group(more);
  command->add_option("--priority", priority_, "Smaller is served first under --policy=priority [0]")->group(more);
  command->add_option("--tenant", tenant_, "For whom, under --policy=fair-share")->option_text("NAME")->group(more);
  command->add_option("--cache-salt", cache_salt_, "Share computed prefixes under the same salt only")
      ->option_text("TEXT")
      ->group(more);
  command->add_flag("--no-prefix-cache", no_prefix_cache_, "Neither use computed prefixes nor leave any")->group(more);
  command->add_option("--request-id", request_id_, "Name of the request, for abort and logs")->group(more);
  command->add_flag("--no-special-tokens", no_special_tokens_, "Do not add the begin-of-sequence token")->group(more);
  command->add_flag("--keep-special-tokens", keep_special_tokens_, "Print special tokens as text")->group(more);
}

absl::StatusOr<v1::GenerateRequest> GenerateCommand::MakeRequest() const {
  v1::GenerateRequest request;
  request.set_request_id(request_id_);
  if (!prompt_ids_.empty()) {
    if (!prompt_.empty()) return absl::InvalidArgumentError("give a prompt or --prompt-ids, not both");
    request.mutable_token_ids()->mutable_ids()->Add(prompt_ids_.begin(), prompt_ids_.end());
  } else {
    QUIRE_ASSIGN_OR_RETURN(*request.mutable_text(), ReadText(prompt_, "prompt"));
  }
  request.set_echo(echo_);
  if (no_special_tokens_) request.set_add_special_tokens(false);
  if (keep_special_tokens_) request.set_skip_special_tokens(false);
  if (priority_) request.set_priority(*priority_);
  if (logprobs_) request.set_logprobs(*logprobs_);
  if (prompt_logprobs_) request.set_prompt_logprobs(*prompt_logprobs_);

  if (num_samples_) request.set_n(*num_samples_);
  if (best_of_) request.set_best_of(*best_of_);
  if (beam_width_) SetBeam(request.mutable_beam());
  request.set_cache_salt(cache_salt_);
  if (no_prefix_cache_) request.set_bypass_prefix_cache(true);
  request.set_tenant(tenant_);
  QUIRE_RETURN_IF_ERROR(SetSampling(request.mutable_sampling()));
  SetStopping(request.mutable_stopping());
  QUIRE_RETURN_IF_ERROR(CheckUtf8(request));
  return request;
}

absl::Status GenerateCommand::SetSampling(v1::SamplingParams* sampling) const {
  if (temperature_) sampling->set_temperature(*temperature_);
  if (top_k_) sampling->set_top_k(*top_k_);
  if (top_p_) sampling->set_top_p(*top_p_);
  if (min_p_) sampling->set_min_p(*min_p_);
  if (presence_penalty_) sampling->set_presence_penalty(*presence_penalty_);
  if (frequency_penalty_) sampling->set_frequency_penalty(*frequency_penalty_);
  if (repetition_penalty_) sampling->set_repetition_penalty(*repetition_penalty_);
  if (seed_) sampling->set_seed(*seed_);
  for (const std::string& entry : logit_bias_) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    uint32_t token = 0;
    float bias = 0;
    if (!absl::SimpleAtoi(parts.first, &token) || !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(absl::StrCat("--logit-bias is \"", entry, "\", not TOKEN_ID=BIAS"));
    }
    (*sampling->mutable_logit_bias())[token] = bias;
  }
  sampling->mutable_allowed_token_ids()->Add(allowed_token_ids_.begin(), allowed_token_ids_.end());
  sampling->mutable_bad_words()->Add(bad_words_.begin(), bad_words_.end());
  return absl::OkStatus();
}

void GenerateCommand::SetBeam(v1::BeamParams* beam) const {
  beam->set_width(*beam_width_);
  if (length_penalty_) beam->set_length_penalty(*length_penalty_);
  if (early_stopping_ == "when-full") beam->set_early_stopping(v1::EARLY_STOPPING_WHEN_FULL);
  if (early_stopping_ == "never") beam->set_early_stopping(v1::EARLY_STOPPING_NEVER);
  if (num_return_) beam->set_num_return_sequences(*num_return_);
  if (num_groups_) beam->set_num_groups(*num_groups_);
  if (diversity_penalty_) beam->set_diversity_penalty(*diversity_penalty_);
}

void GenerateCommand::SetStopping(v1::StoppingParams* stopping) const {
  if (max_tokens_) stopping->set_max_tokens(*max_tokens_);
  if (min_tokens_) stopping->set_min_tokens(*min_tokens_);
  stopping->set_ignore_eos(ignore_eos_);
  stopping->set_include_stop(include_stop_);
  stopping->mutable_stop()->Add(stop_.begin(), stop_.end());
  stopping->mutable_stop_token_ids()->Add(stop_token_ids_.begin(), stop_token_ids_.end());
}

// The server's own default is too short for a shell, and it refuses what the context cannot hold.
uint32_t GenerateCommand::DefaultMaxTokens(Client& client, const v1::GenerateRequest& request) const {
  const uint32_t wanted = std::max(kDefaultMaxTokens, min_tokens_.value_or(0));
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok()) return wanted;  // Generate will say why, or wait until a worker has joined.
  const uint64_t context = model->max_context_tokens();
  uint64_t num_prompt_tokens = request.token_ids().ids_size();
  // A token has at least one byte: most prompts need not be counted.
  if (request.has_text() && request.text().size() + wanted >= context) {
    v1::TokenizeRequest text;
    text.set_text(request.text());
    if (request.has_add_special_tokens()) text.set_add_special_tokens(request.add_special_tokens());
    const absl::StatusOr<v1::TokenizeResponse> tokens = client.Tokenize(text);
    if (!tokens.ok()) return wanted;
    num_prompt_tokens = tokens->token_ids_size();
  }
  if (num_prompt_tokens >= context) return 1;  // Refused for its prompt alone.
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, context - num_prompt_tokens));
}

int GenerateCommand::Run(const ClientOptions& client_options, OutputFormat format) {
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest();
  if (!request.ok()) return ReportUsage(request.status().message());
  Interrupt interrupt;
  Client client(client_options);
  const absl::Time start = absl::Now();
  if (!max_tokens_) request->mutable_stopping()->set_max_tokens(DefaultMaxTokens(client, *request));
  std::unique_ptr<GenerateStream> stream = client.Generate(*request, absl::Seconds(timeout_s_));
  interrupt.Watch(stream.get());
  v1::GenerateResponse response;
  v1::GenerateResponse last;
  bool printed = false;
  bool can_print = true;
  const uint32_t num_samples = beam_width_ ? num_return_.value_or(1) : num_samples_.value_or(1);
  SamplePrinter printer({.num_samples = num_samples,
                         .is_ranked = beam_width_.has_value() || best_of_.value_or(0) > num_samples,
                         .shows_logprobs = logprobs_.has_value(),
                         .shows_ends = show_usage_});
  while (can_print && stream->Next(&response)) {
    if (format == OutputFormat::kJson) {
      PrintJson(response);
    } else {
      printer.Add(response);
    }
    can_print = FlushOutput();
    printed = true;
    last.Swap(&response);
  }
  if (!can_print) stream->Cancel();
  const absl::Status status = stream->Finish();
  interrupt.Watch(static_cast<GenerateStream*>(nullptr));
  printer.End();
  if (!can_print) return kExitFailed;
  if (const int signal = interrupt.signal(); signal != 0) {
    FlushOutput();
    EndBySignal(signal);
  }
  if (!status.ok()) {
    const int code = ReportError(status, client_options.endpoint);
    return printed ? kExitPartial : code;
  }
  if (show_usage_) PrintUsage(last, num_samples == 1, absl::Now() - start);
  if (last.finish_reason() == v1::FINISH_REASON_ABORT) {
    std::fprintf(stderr, "quirectl: the request was aborted\n");
    return kExitPartial;
  }
  return kExitOk;
}

}  // namespace quire
