// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/commands/generate_options.h"
#include "client/commands/option_names.h"
#include "client/commands/sample_printer.h"
#include "client/terminal/interrupt.h"

namespace quire {
namespace {

constexpr uint32_t kDefaultMaxTokens = 128;
constexpr absl::Duration kAbortTimeout = absl::Seconds(3);

// Prints the token counts of the whole request. `last` is its last response.
void PrintUsage(const v1::GenerateResponse& last, bool has_one_sample, absl::Duration duration) {
  const v1::Usage& usage = last.usage();
  const std::string cached = usage.cached_tokens() > 0 ? absl::StrCat(", ", usage.cached_tokens(), " cached") : "";
  const std::string end = has_one_sample ? absl::StrCat(", finished: ", EndInWords(last)) : "";
  // The text comes first where both go to the same place.
  FlushOutput();
  std::fprintf(stderr, "[%u prompt + %u generated tokens in %s%s%s]\n", usage.prompt_tokens(),
               usage.completion_tokens(), absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1))).c_str(),
               cached.c_str(), end.c_str());
}

// The longest answer that is wanted, and what of it the context allows.
struct MaxTokens {
  uint32_t wanted;
  uint32_t allowed;
};

// Returns how many tokens to ask for when the user did not say. This is at least min_tokens and at most what the
// context leaves, because the manager refuses more. The default of the model is used if it has one. The manager's own
// default is too short for a shell.
MaxTokens DefaultMaxTokens(Client& client, const v1::GenerateRequest& request) {
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  const bool has_default = model.ok() && model->has_default_max_tokens();
  const uint32_t wanted =
      std::max(has_default ? model->default_max_tokens() : kDefaultMaxTokens, request.stopping().min_tokens());
  if (!model.ok()) return {wanted, wanted};  // Generate will report the error, or wait until a worker has joined.
  const uint64_t context = model->max_context_tokens();
  uint64_t num_prompt_tokens = request.token_ids().ids_size();
  // A token has at least one byte, so most prompts need not be counted.
  if (request.has_text() && request.text().size() + wanted >= context) {
    v1::TokenizeRequest text;
    text.set_text(request.text());
    if (request.has_add_special_tokens()) text.set_add_special_tokens(request.add_special_tokens());
    if (request.has_parse_special_tokens()) text.set_parse_special_tokens(request.parse_special_tokens());
    const absl::StatusOr<v1::TokenizeResponse> tokens = client.Tokenize(text);
    if (!tokens.ok()) return {wanted, wanted};
    num_prompt_tokens = tokens->token_ids_size();
  }
  if (num_prompt_tokens >= context) return {wanted, 1};  // The manager refuses the prompt and says so.
  return {wanted, static_cast<uint32_t>(std::min<uint64_t>(wanted, context - num_prompt_tokens))};
}

// A stream after its end.
struct Streamed {
  absl::Status status;
  v1::GenerateResponse last;
  std::map<uint32_t, uint32_t> num_tokens;  // The key is the sample.
  std::set<uint32_t> cut_samples;           // Samples that were cut by --max-tokens or the context.
  bool has_printed = false;
  bool can_print = true;  // Becomes false when standard output cannot be written, which cancels the call.

  uint32_t NumTokens() const {
    return std::accumulate(num_tokens.begin(), num_tokens.end(), 0u,
                           [](uint32_t sum, const auto& sample) { return sum + sample.second; });
  }
};

// Tells the user why no text comes.
void TellOfLoss(bool has_printed) {
  FlushOutput();
  std::fprintf(stderr, "%squirectl: the connection to the manager was lost; trying for %d s to resume (Ctrl-C stops)\n",
               has_printed && isatty(STDERR_FILENO) == 1 ? "\n" : "",
               static_cast<int>(absl::ToInt64Seconds(GenerateStream::kResumeTime)));
}

// Returns true if the answer has no text, because the model has no tokenizer, and says so. Call it after the first
// response, because until then there may be no worker, and so no model.
bool HasOnlyIds(Client& client, const v1::GenerateRequest& request) {
  if (!request.has_token_ids()) return false;  // The manager needs a tokenizer for any other prompt.
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok() || model->has_tokenizer()) return false;
  std::fprintf(stderr, "quirectl: the model has no tokenizer, so these are token ids\n");
  return true;
}

// Prints the responses as they come. Ctrl-C cancels the call.
Streamed PrintStream(const GenerateOptions& options, const v1::GenerateRequest& request, OutputFormat format,
                     Client& client, Interrupt* interrupt) {
  const std::unique_ptr<GenerateStream> stream = client.Generate(request, absl::Seconds(options.timeout_s));
  interrupt->Watch(stream.get());
  std::optional<SamplePrinter> printer;
  Streamed streamed;
  if (!options.no_resume) stream->OnLoss([&streamed] { TellOfLoss(streamed.has_printed); });
  v1::GenerateResponse response;
  while (streamed.can_print && stream->Next(&response)) {
    if (format == OutputFormat::kJson) {
      response.clear_resume_token();  // It does not belong into logs.
      PrintJson(response);
    } else {
      if (!printer) {
        printer.emplace(SamplePrinter::Options{.num_samples = options.num_returned(),
                                               .is_ranked = options.is_ranked(),
                                               .shows_logprobs = options.logprobs.has_value(),
                                               .shows_ids = HasOnlyIds(client, request),
                                               .shows_ends = options.show_usage});
      }
      printer->Add(response);
    }
    streamed.can_print = FlushOutput();
    streamed.has_printed = true;
    streamed.num_tokens[response.index()] += response.token_ids_size();
    if (response.finish_reason() == v1::FINISH_REASON_LENGTH) streamed.cut_samples.insert(response.index());
    streamed.last.Swap(&response);
  }
  if (!streamed.can_print) stream->Cancel();
  streamed.status = stream->Finish();
  interrupt->Watch(static_cast<GenerateStream*>(nullptr));
  if (printer) printer->End();
  return streamed;
}

// An answer that was cut looks like a whole one. Whoever has chosen --max-tokens expects the cut, unless the answer
// should be a value of a guide. In JSON, an answer says itself why it ended.
void WarnOfCuts(const GenerateOptions& options, OutputFormat format, uint32_t wanted, const Streamed& streamed) {
  const std::string whole = options.guide.Description();
  if (whole.empty() && (options.max_tokens || format == OutputFormat::kJson)) return;
  FlushOutput();
  for (const uint32_t sample : streamed.cut_samples) {
    const uint32_t num_tokens = streamed.num_tokens.at(sample);
    const std::string which = options.num_returned() > 1 ? absl::StrCat("answer ", sample) : "";
    const std::string what =
        whole.empty() ? absl::StrCat(which, which.empty() ? "" : " ", "stopped after ", Counted(num_tokens, "token"))
                      : absl::StrCat(which.empty() ? "the answer" : which, " was cut at ", Counted(num_tokens, "token"),
                                     ", so it may not be ", whole);
    std::fprintf(stderr, "quirectl: %s; %s\n", what.c_str(), AdviceAfterCut(num_tokens, wanted));
  }
}

// A connection that breaks is made again, and the stream continues. Ctrl-C ends the call, the line and then the
// process; output that cannot be written ends the call as well. The manager frees the blocks in both cases.
int RunGenerate(const GenerateOptions& options, const CommandContext& context) {
  absl::StatusOr<v1::GenerateRequest> request = options.MakeRequest();
  if (!request.ok()) return ReportUsage(request.status().message());
  Interrupt interrupt;
  // When the reader of standard output goes away, the request must be ended before the process.
  std::signal(SIGPIPE, SIG_IGN);
  Client client(context.client);
  const absl::Time start = absl::Now();
  uint32_t wanted = options.max_tokens.value_or(0);
  if (!options.max_tokens) {
    const MaxTokens max_tokens = DefaultMaxTokens(client, *request);
    request->mutable_stopping()->set_max_tokens(max_tokens.allowed);
    wanted = max_tokens.wanted;
  }
  const Streamed streamed = PrintStream(options, *request, context.format, client, &interrupt);
  // A request that outlives its call ends only by this.
  const bool was_cancelled = !streamed.can_print || interrupt.signal() != 0;
  if (was_cancelled && !options.no_resume) client.Abort(request->request_id(), kAbortTimeout).IgnoreError();
  if (HasLostReader()) EndBySignal(SIGPIPE);
  if (!streamed.can_print) return kExitFailed;
  if (const int signal = interrupt.signal(); signal != 0) {
    FlushOutput();
    EndBySignal(signal);
  }
  const bool has_timed_out = absl::Now() - start >= absl::Seconds(options.timeout_s);
  if (absl::IsDeadlineExceeded(streamed.status) && streamed.has_printed && has_timed_out) {
    std::fprintf(stderr, "quirectl: --timeout ended the answer after %s\n",
                 Counted(streamed.NumTokens(), "token").c_str());
    return kExitPartial;
  }
  if (!streamed.status.ok()) {
    const int code = ReportError(WithOptionNames(streamed.status), context.client.endpoint);
    return streamed.has_printed ? kExitPartial : code;
  }
  WarnOfCuts(options, context.format, wanted, streamed);
  if (options.show_usage) PrintUsage(streamed.last, options.num_returned() == 1, absl::Now() - start);
  if (streamed.last.finish_reason() == v1::FINISH_REASON_ABORT) {
    std::fprintf(stderr, "quirectl: the request was aborted\n");
    return streamed.NumTokens() > 0 ? kExitPartial : kExitFailed;
  }
  return kExitOk;
}

}  // namespace

void AddGenerateCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("generate", "Continue a prompt and print the text as it is generated.", RunGenerate);
  AddGenerateOptions(command, options);
}

}  // namespace quire
