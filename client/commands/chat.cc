// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/commands/option_names.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/terminal/interrupt.h"

namespace quire {
namespace {

constexpr uint32_t kDefaultMaxTokens = 512;
constexpr char kCommands[] =
    "/system TEXT begins a new conversation with this system message, /reset begins a new one, /quit ends; a line that "
    "begins with // is a message that begins with /";

struct ChatOptions {
  std::string system;
  std::string template_kwargs;
  double timeout_s = 600;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint64_t> seed;
};

// A conversation with the model, line by line.
class Talk {
 public:
  Talk(const ChatOptions& options, const CommandContext& context)
      : options_(options),
        context_(context),
        is_terminal_(isatty(STDIN_FILENO) == 1),
        client_(context.client),
        system_(options.system) {
    Reset();
  }

  // Returns the exit code.
  int Run() {
    if (is_terminal_) std::fprintf(stderr, "%s.\n", kCommands);
    std::string line;
    while (ReadLine(&line)) {
      if (line == "/quit") break;
      if (IsCommand(line)) {
        const int code = RunCommand(line);
        if (code != kExitOk && !is_terminal_) return code;
      } else if (!absl::StripAsciiWhitespace(line).empty()) {
        const int code = Say(absl::StartsWith(line, "//") ? line.substr(1) : line);
        if (!can_print_) return kExitFailed;
        if (code != kExitOk && !is_terminal_) return code;
      }
    }
    return kExitOk;
  }

 private:
  static bool IsCommand(const std::string& line) {
    return absl::StartsWith(line, "/") && !absl::StartsWith(line, "//");
  }

  // Returns false at the end of the input.
  bool ReadLine(std::string* line) {
    if (is_terminal_) std::fprintf(stderr, "> ");
    if (std::getline(std::cin, *line)) {
      if (absl::EndsWith(*line, "\r")) line->pop_back();  // Lines of files from Windows end with "\r\n".
      return true;
    }
    if (is_terminal_) std::fprintf(stderr, "\n");
    return false;
  }

  int RunCommand(const std::string& line) {
    if (line == "/system") return ReportUsage("/system needs a text: /system TEXT");
    if (absl::StartsWith(line, "/system ")) {
      system_ = line.substr(line.find(' ') + 1);
    } else if (line != "/reset") {
      return ReportUsage(absl::StrCat("\"", line, "\" is not a command: ", kCommands));
    }
    Reset();
    return kExitOk;
  }

  void Reset() {
    chat_.Clear();
    chat_.set_template_kwargs(options_.template_kwargs);
    if (!system_.empty()) Add("system", system_);
  }

  void Add(const std::string& role, const std::string& content) {
    v1::ChatMessage* const message = chat_.add_messages();
    message->set_role(role);
    message->set_content(content);
  }

  // Sends a message and prints the answer. After an error, the conversation is as it was before. An answer that was
  // stopped stays, as far as it has come.
  int Say(const std::string& content) {
    Add("user", content);
    std::string answer;
    const absl::Status status = Answer(&answer);
    if (!status.ok()) {
      chat_.mutable_messages()->RemoveLast();
      const int code = ReportError(WithOptionNames(status), context_.client.endpoint);
      return answer.empty() ? code : kExitPartial;
    }
    Add("assistant", answer);
    return kExitOk;
  }

  absl::Status Answer(std::string* answer) {
    QUIRE_ASSIGN_OR_RETURN(const v1::GenerateRequest request, MakeRequest());
    const std::unique_ptr<GenerateStream> stream = client_.Generate(request, absl::Seconds(options_.timeout_s));
    interrupt_.Watch(stream.get());
    v1::GenerateResponse response;
    bool was_cut = false;
    uint32_t num_tokens = 0;
    while (can_print_ && stream->Next(&response)) {
      Print(response);
      answer->append(response.text_delta());
      num_tokens += response.token_ids_size();
      was_cut = response.finish_reason() == v1::FINISH_REASON_LENGTH;
    }
    if (!can_print_) stream->Cancel();
    const absl::Status status = stream->Finish();
    interrupt_.Watch(static_cast<GenerateStream*>(nullptr));
    const int signal = interrupt_.signal();
    if (context_.format == OutputFormat::kText && !(answer->empty() || answer->back() == '\n')) std::printf("\n");
    can_print_ = FlushOutput() && can_print_;
    if (signal != 0 && signal != SIGINT) EndBySignal(signal);
    // An answer that was cut looks like a whole one. Whoever has chosen --max-tokens expects the cut.
    if (was_cut && !options_.max_tokens && context_.format == OutputFormat::kText) {
      std::fprintf(stderr, "quirectl: stopped after %s; %s\n", Counted(num_tokens, "token").c_str(),
                   AdviceAfterCut(num_tokens, wanted_tokens_));
    }
    return signal != 0 && absl::IsCancelled(status) ? absl::OkStatus() : status;
  }

  void Print(const v1::GenerateResponse& response) {
    if (context_.format == OutputFormat::kJson) {
      PrintJson(response);
    } else {
      std::fwrite(response.text_delta().data(), 1, response.text_delta().size(), stdout);
    }
    can_print_ = FlushOutput();
  }

  absl::StatusOr<v1::GenerateRequest> MakeRequest() {
    v1::GenerateRequest request;
    *request.mutable_chat() = chat_;
    v1::SamplingParams* const sampling = request.mutable_sampling();
    if (options_.temperature) sampling->set_temperature(*options_.temperature);
    if (options_.top_p) sampling->set_top_p(*options_.top_p);
    if (options_.seed) sampling->set_seed(*options_.seed);
    QUIRE_ASSIGN_OR_RETURN(const uint32_t max_tokens, MaxTokens());
    request.mutable_stopping()->set_max_tokens(max_tokens);
    return request;
  }

  // At most what the context leaves, because the manager refuses more.
  absl::StatusOr<uint32_t> MaxTokens() {
    QUIRE_ASSIGN_OR_RETURN(const v1::GetModelResponse model, client_.GetModel());
    QUIRE_ASSIGN_OR_RETURN(const v1::RenderChatResponse prompt, client_.RenderChat(chat_));
    const uint32_t by_default = model.has_default_max_tokens() ? model.default_max_tokens() : kDefaultMaxTokens;
    wanted_tokens_ = options_.max_tokens.value_or(by_default);
    const auto num_prompt_tokens = static_cast<uint32_t>(prompt.token_ids_size());
    if (num_prompt_tokens < model.max_context_tokens()) {
      return std::min(wanted_tokens_, model.max_context_tokens() - num_prompt_tokens);
    }
    return InvalidArgument("the conversation has ", num_prompt_tokens, " tokens, and the model's context is ",
                           model.max_context_tokens(), "; /reset begins a new one");
  }

  const ChatOptions& options_;
  const CommandContext& context_;
  const bool is_terminal_;
  // Before the client, whose threads inherit the blocked signals.
  Interrupt interrupt_;
  Client client_;
  std::string system_;
  v1::Chat chat_;
  uint32_t wanted_tokens_ = 0;  // The longest answer that is wanted, though the context may allow less.
  bool can_print_ = true;       // Becomes false when standard output cannot be written.
};

// Ctrl-C stops an answer; while nothing is answered, it ends the process.
int RunChat(const ChatOptions& options, const CommandContext& context) {
  // When the reader of standard output goes away, the request must be ended before the process.
  std::signal(SIGPIPE, SIG_IGN);
  const int code = Talk(options, context).Run();
  if (HasLostReader()) EndBySignal(SIGPIPE);
  return code;
}

}  // namespace

void AddChatCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("chat", "Talk to the model: each line of standard input is a message.", RunChat);
  command->add_option("--system", options->system, "Begin with this system message")->option_text("TEXT");
  AddOption(command, "-n,--max-tokens", &options->max_tokens, "N",
            "Longest answer, at most what the context leaves [the model's default or 512]")
      ->check(InRange<uint32_t>(1));
  AddOption(command, "-t,--temperature", &options->temperature, "T",
            "0 always takes the likeliest token [the model's default or 1]")
      ->check(IsNumber());
  AddOption(command, "--top-p", &options->top_p, "P",
            "Draw from the likeliest tokens that together reach this probability [the model's default or 1]")
      ->check(IsNumber());
  AddOption(command, "--seed", &options->seed, "SEED", "Make the draws repeatable [the manager chooses a random seed]")
      ->check(InRange<uint64_t>());
  AddOption(command, "--template-kwargs", &options->template_kwargs, "JSON",
            "Variables of the chat template as JSON, such as {\"enable_thinking\": false}");
  AddOption(command, "--timeout", &options->timeout_s, "SECONDS [600]", "Cancel an answer after this time")
      ->transform(InSeconds<double>(0.001, 1e6));
  command->footer(kCommands);
}

}  // namespace quire
