// SPDX-License-Identifier: Apache-2.0

// `quirectl pin` and `quirectl unpin`.

#include <algorithm>
#include <cstdio>

#include "base/number_text.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/terminal/input.h"

namespace quire {
namespace {

struct PromptOptions {
  std::string text;
  std::string cache_salt;
  bool no_special_tokens = false;
  bool no_parse_special = false;
};

struct PinOptions {
  PromptOptions prompt;
  uint32_t ttl_seconds = 600;
};

void AddPromptOptions(CLI::App* command, PromptOptions* prompt) {
  AddOption(command, "prompt", &prompt->text, " ", "The prompt; \"-\" reads standard input")->required();
  AddOption(command, "--cache-salt", &prompt->cache_salt, "SALT",
            "The cache salt of the requests that share the prompt");
  command->add_flag("--no-special-tokens", prompt->no_special_tokens, "Do not add the begin-of-sequence token");
  command->add_flag("--no-parse-special", prompt->no_parse_special,
                    "Take text that spells a special token as ordinary text");
}

template <typename Request>
absl::Status FillPrompt(const PromptOptions& prompt, Request* request) {
  QUIRE_ASSIGN_OR_RETURN(*request->mutable_text(), ReadText(prompt.text, "prompt"));
  request->set_add_special_tokens(!prompt.no_special_tokens);
  // Managers of older versions refuse fields that they do not know.
  if (prompt.no_parse_special) request->set_parse_special_tokens(false);
  request->set_cache_salt(prompt.cache_salt);
  return absl::OkStatus();
}

int RunPin(const PinOptions& options, const CommandContext& context) {
  v1::PinPrefixRequest request;
  if (const absl::Status status = FillPrompt(options.prompt, &request); !status.ok()) {
    return ReportUsage(status.message());
  }
  request.set_ttl_seconds(options.ttl_seconds);
  Client client(context.client);
  const absl::StatusOr<v1::PinPrefixResponse> response = client.PinPrefix(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  const auto& workers = response->workers();
  const bool is_pinned = std::any_of(workers.begin(), workers.end(),
                                     [](const v1::WorkerPin& worker) { return worker.pinned_tokens() > 0; });
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
    return is_pinned ? kExitOk : kExitFailed;
  }
  for (const v1::WorkerPin& worker : workers) {
    std::printf("worker %s: %u of %u prompt tokens pinned%s%s\n", worker.address().c_str(), worker.pinned_tokens(),
                response->prompt_tokens(), worker.refusal().empty() ? "" : "; ", worker.refusal().c_str());
  }
  if (is_pinned) return kExitOk;
  std::fprintf(stderr,
               "quirectl: nothing is pinned: no whole block of this prompt is cached; generate with it first\n");
  return kExitFailed;
}

int RunUnpin(const PromptOptions& prompt, const CommandContext& context) {
  v1::UnpinPrefixRequest request;
  if (const absl::Status status = FillPrompt(prompt, &request); !status.ok()) return ReportUsage(status.message());
  Client client(context.client);
  const absl::StatusOr<v1::UnpinPrefixResponse> response = client.UnpinPrefix(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("unpinned on %s\n", Counted(response->num_workers(), "worker").c_str());
  }
  return kExitOk;
}

}  // namespace

void AddPinCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "pin",
      "Keep the cached blocks of a prompt for some time. A prompt is cached after a request with it has run, and only "
      "its whole blocks can be pinned. Exit with 1 when no block of it is cached.",
      RunPin);
  AddPromptOptions(command, &options->prompt);
  AddOption(command, "--ttl", &options->ttl_seconds, "SECONDS [600]", "How long to keep the blocks, 1 .. 86400")
      ->transform(InSeconds<uint32_t>(1, 86400));
}

void AddUnpinCommand(CommandList* list) {
  const auto [command, prompt] = list->Add("unpin", "End the pin of a prompt.", RunUnpin);
  AddPromptOptions(command, prompt);
}

}  // namespace quire
