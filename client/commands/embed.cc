// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/number_text.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/commands/shared_options.h"
#include "client/terminal/input.h"

namespace quire {
namespace {

struct EmbedOptions {
  std::vector<std::string> texts;
  bool lines = false;
  std::optional<uint32_t> dimensions;
  bool normalize = false;
  bool no_normalize = false;
  bool no_special_tokens = false;
  bool no_parse_special = false;
};

// Returns the cosine of the angle between two vectors of the same size, or nothing when one of them is zero.
std::optional<double> Cosine(const v1::Embedding& a, const v1::Embedding& b) {
  double product = 0, squares_a = 0, squares_b = 0;
  for (int i = 0; i < a.values_size(); ++i) {
    product += double{a.values(i)} * b.values(i);
    squares_a += double{a.values(i)} * a.values(i);
    squares_b += double{b.values(i)} * b.values(i);
  }
  if (squares_a == 0 || squares_b == 0) return std::nullopt;
  return product / std::sqrt(squares_a * squares_b);
}

absl::Status AddTexts(const EmbedOptions& options, v1::EmbedRequest* request) {
  if (options.lines && options.texts != std::vector<std::string>{"-"}) {
    return absl::InvalidArgumentError("--lines needs \"-\" as the only text, it divides standard input");
  }
  for (const std::string& argument : options.texts) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(argument, "text"));
    if (!options.lines) {
      request->add_inputs()->set_text(text);
      continue;
    }
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
      request->add_inputs()->set_text(std::string(line));
    }
  }
  return absl::OkStatus();
}

int RunEmbed(const EmbedOptions& options, const CommandContext& context) {
  v1::EmbedRequest request;
  if (const absl::Status status = AddTexts(options, &request); !status.ok()) return ReportUsage(status.message());
  if (options.dimensions.has_value()) request.set_dimensions(*options.dimensions);
  if (options.normalize || options.no_normalize) request.set_normalize(options.normalize);
  if (options.no_special_tokens) request.set_add_special_tokens(false);
  if (options.no_parse_special) request.set_parse_special_tokens(false);
  Client client(context.client);
  const absl::StatusOr<v1::EmbedResponse> response = client.Embed(request);
  if (!response.ok()) return ReportError(response.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*response);
    return kExitOk;
  }
  for (int i = 0; i < response->embeddings_size(); ++i) {
    const v1::Embedding& embedding = response->embeddings(i);
    std::printf("text %d: %s, %s", i + 1, Counted(embedding.values_size(), "value").c_str(),
                Counted(embedding.prompt_tokens(), "token").c_str());
    if (i > 0) {
      const std::optional<double> cosine = Cosine(response->embeddings(0), embedding);
      if (cosine.has_value()) std::printf(", cosine with text 1: %.4f", *cosine);
      if (!cosine.has_value()) std::printf(", no cosine with text 1: an embedding is zero");
    }
    std::printf("\n");
  }
  return kExitOk;
}

}  // namespace

void AddEmbedCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "embed",
      "Print the size of the embeddings of texts, and how similar they are: the cosine of each with the first one. "
      "With -o json, print the embeddings.",
      RunEmbed);
  AddOption(command, "texts", &options->texts, " ", "The texts; \"-\" reads standard input")->required();
  command->add_flag("--lines", options->lines, "Take each line of standard input as a text");
  AddOption(command, "--dimensions", &options->dimensions, "N [all]",
            "How many values an embedding keeps, for models that were trained for it");
  CLI::Option* const normalize = command->add_flag(
      "--normalize", options->normalize, "Divide embeddings by their length; the default is that of the model");
  command->add_flag("--no-normalize", options->no_normalize, "Do not divide them")->excludes(normalize);
  command->add_flag("--no-special-tokens", options->no_special_tokens,
                    "Do not add the special tokens of the tokenizer");
  command->add_flag("--no-parse-special", options->no_parse_special,
                    "Take text that spells a special token as ordinary text");
}

}  // namespace quire
