// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "client/commands/commands.h"
#include "client/terminal/input.h"

namespace quire {
namespace {

struct TokenizeOptions {
  std::string text;
  bool no_special_tokens = false;
  bool no_parse_special = false;
};

int RunTokenize(const TokenizeOptions& options, const CommandContext& context) {
  const absl::StatusOr<std::string> text = ReadText(options.text, "text");
  if (!text.ok()) return ReportUsage(text.status().message());
  Client client(context.client);
  v1::TokenizeRequest request;
  request.set_text(*text);
  request.set_add_special_tokens(!options.no_special_tokens);
  // Managers of older versions refuse fields that they do not know.
  if (options.no_parse_special) request.set_parse_special_tokens(false);
  const absl::StatusOr<v1::TokenizeResponse> response = client.Tokenize(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
    return kExitOk;
  }
  for (int i = 0; i < response->token_ids_size(); ++i) {
    std::printf("%7u  %s\n", response->token_ids(i), response->pieces(i).c_str());
  }
  return kExitOk;
}

}  // namespace

void AddTokenizeCommand(CommandList* list) {
  const auto [command, options] = list->Add("tokenize", "Print the tokens of a text.", RunTokenize);
  command->add_option("text", options->text, "The text; \"-\" reads standard input")->required()->option_text(" ");
  command->add_flag("--no-special-tokens", options->no_special_tokens, "Do not add the begin-of-sequence token");
  command->add_flag("--no-parse-special", options->no_parse_special,
                    "Take text that spells a special token as ordinary text");
}

}  // namespace quire
