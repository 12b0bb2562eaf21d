// SPDX-License-Identifier: Apache-2.0

#include <cstdio>
#include <vector>

#include "client/commands/commands.h"
#include "client/commands/shared_options.h"
#include "client/terminal/input.h"

namespace quire {
namespace {

struct DetokenizeOptions {
  std::vector<std::string> ids;
  bool keep_special_tokens = false;
};

int RunDetokenize(const DetokenizeOptions& options, const CommandContext& context) {
  const absl::StatusOr<std::vector<uint32_t>> ids = ReadTokenIds(options.ids);
  if (!ids.ok()) return ReportUsage(ids.status().message());
  Client client(context.client);
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(ids->begin(), ids->end());
  request.set_skip_special_tokens(!options.keep_special_tokens);
  const absl::StatusOr<v1::DetokenizeResponse> response = client.Detokenize(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("%s\n", response->text().c_str());
  }
  return kExitOk;
}

}  // namespace

void AddDetokenizeCommand(CommandList* list) {
  const auto [command, options] = list->Add("detokenize", "Print the text of tokens.", RunDetokenize);
  AddOption(command, "ids", &options->ids, " ",
            "Token ids, or the JSON of `tokenize -o json`; \"-\" reads standard input")
      ->required();
  command->add_flag("--keep-special-tokens", options->keep_special_tokens, "Print special tokens as text");
}

}  // namespace quire
