#include "client/generate_command.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace quire {
namespace {

// The call that Ctrl-C ends.
std::mutex g_stream_mutex;
GenerateStream* g_stream = nullptr;  // Guarded by g_stream_mutex.

void SetStreamToCancel(GenerateStream* stream) {
  std::lock_guard lock(g_stream_mutex);
  g_stream = stream;
}

// Under the lock, so that the stream cannot be destroyed meanwhile.
void CancelStream() {
  std::lock_guard lock(g_stream_mutex);
  if (g_stream != nullptr) g_stream->Cancel();
}

// Ends the running call on SIGINT or SIGTERM. The signals are blocked everywhere and taken by a thread of their own,
// because a signal handler may not call into gRPC.
void CancelOnSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    CancelStream();
    sigwait(&signals, &signal);
    _exit(128 + signal);
  }).detach();
}

void PrintUsage(const v1::GenerateResponse& last, absl::Duration duration) {
  const v1::Usage& usage = last.usage();
  const std::string stop =
      last.stop_match_case() == v1::GenerateResponse::kStop ? absl::StrCat(" at \"", last.stop(), "\"") : "";
  std::fprintf(stderr, "[%u prompt + %u generated tokens in %s, finished: %s%s]\n", usage.prompt_tokens(),
               usage.completion_tokens(), absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1))).c_str(),
               last.finish_reason() == v1::FINISH_REASON_LENGTH  ? "length"
               : last.finish_reason() == v1::FINISH_REASON_ABORT ? "aborted"
                                                                 : "stop",
               stop.c_str());
}

}  // namespace

GenerateCommand::GenerateCommand(CLI::App* command) {
  command->description("Continue a prompt and print the text as it is generated.");
  command->add_option("prompt", prompt_, "The prompt; \"-\" reads standard input; empty starts from nothing");
  command->add_option("--prompt-ids", prompt_ids_, "Token ids as the prompt instead of text")->delimiter(',');
  command->add_option("-n,--max-tokens", max_tokens_, "Generated tokens at most")->capture_default_str();
  command->add_option("--timeout", timeout_s_, "Seconds until the call is given up [600]")
      ->check(CLI::Range(0.001, 1e6));
  command->add_flag("--echo", echo_, "Print the prompt first");
  command->add_flag("--usage", show_usage_, "Print token counts to standard error at the end");

  const char* sampling = "Sampling";
  command->add_option("-t,--temperature", temperature_, "0 is greedy [1]")->group(sampling);
  command->add_option("--top-k", top_k_, "Keep the k likeliest tokens [all]")->group(sampling);
  command->add_option("--top-p", top_p_, "Keep the likeliest tokens that reach this probability [1]")->group(sampling);
  command->add_option("--min-p", min_p_, "Drop tokens below this share of the likeliest one [0]")->group(sampling);
  command->add_option("--presence-penalty", presence_penalty_, "-2 .. 2 [0]")->group(sampling);
  command->add_option("--frequency-penalty", frequency_penalty_, "-2 .. 2 [0]")->group(sampling);
  command->add_option("--repetition-penalty", repetition_penalty_, "Above 0 [1]")->group(sampling);
  command->add_option("--seed", seed_, "Makes draws repeatable [chosen by the server]")->group(sampling);
  command->add_option("--logit-bias", logit_bias_, "TOKEN_ID=BIAS, repeatable")->group(sampling);
  command->add_option("--allowed-token-ids", allowed_token_ids_, "Pick only these")->delimiter(',')->group(sampling);
  command->add_option("--bad-word", bad_words_, "Never generate this text, repeatable")->group(sampling);

  const char* stopping = "Stopping";
  command->add_option("--min-tokens", min_tokens_, "Do not end before this many tokens [0]")->group(stopping);
  command->add_option("--stop", stop_, "End at this text, repeatable")->group(stopping);
  command->add_option("--stop-token-ids", stop_token_ids_, "End at one of these tokens")
      ->delimiter(',')
      ->group(stopping);
  command->add_flag("--include-stop", include_stop_, "Print the stop text as well")->group(stopping);
  command->add_flag("--ignore-eos", ignore_eos_, "Go on after the model's end token")->group(stopping);

  const char* more = "More";
  command->add_option("--logprobs", logprobs_, "Logprobs of the k likeliest tokens (with -o json)")->group(more);
  command->add_option("--prompt-logprobs", prompt_logprobs_, "The same for the prompt (with -o json)")->group(more);
  command->add_option("--priority", priority_, "Smaller is served first under --policy=priority [0]")->group(more);
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
  } else if (prompt_ == "-") {
    request.set_text(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  } else {
    request.set_text(prompt_);
  }
  request.set_echo(echo_);
  if (no_special_tokens_) request.set_add_special_tokens(false);
  if (keep_special_tokens_) request.set_skip_special_tokens(false);
  if (priority_) request.set_priority(*priority_);
  if (logprobs_) request.set_logprobs(*logprobs_);
  if (prompt_logprobs_) request.set_prompt_logprobs(*prompt_logprobs_);

  v1::SamplingParams* sampling = request.mutable_sampling();
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

  v1::StoppingParams* stopping = request.mutable_stopping();
  stopping->set_max_tokens(max_tokens_);
  if (min_tokens_) stopping->set_min_tokens(*min_tokens_);
  stopping->set_ignore_eos(ignore_eos_);
  stopping->set_include_stop(include_stop_);
  stopping->mutable_stop()->Add(stop_.begin(), stop_.end());
  stopping->mutable_stop_token_ids()->Add(stop_token_ids_.begin(), stop_token_ids_.end());
  return request;
}

int GenerateCommand::Run(const ClientOptions& client_options, OutputFormat format) {
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest();
  if (!request.ok()) {
    std::fprintf(stderr, "quirectl: %s\n", std::string(request.status().message()).c_str());
    return kExitUsage;
  }
  CancelOnSignal();
  Client client(client_options);
  const absl::Time start = absl::Now();
  std::unique_ptr<GenerateStream> stream = client.Generate(*request, absl::Seconds(timeout_s_));
  SetStreamToCancel(stream.get());
  v1::GenerateResponse response;
  v1::GenerateResponse last;
  bool printed = false;
  while (stream->Next(&response)) {
    if (format == OutputFormat::kJson) {
      PrintJson(response);
    } else {
      std::fwrite(response.text_delta().data(), 1, response.text_delta().size(), stdout);
      std::fflush(stdout);
    }
    printed = true;
    last.Swap(&response);
  }
  const absl::Status status = stream->Finish();
  SetStreamToCancel(nullptr);
  if (format == OutputFormat::kText && printed) std::printf("\n");
  if (!status.ok()) {
    const int code = ReportError(status, client_options.endpoint);
    return printed ? kExitPartial : code;
  }
  if (show_usage_) PrintUsage(last, absl::Now() - start);
  return kExitOk;
}

}  // namespace quire
