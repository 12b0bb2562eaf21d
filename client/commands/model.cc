// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/message_numbers.h"
#include "base/sampling_fields.h"
#include "client/commands/commands.h"

namespace quire {
namespace {

// The defaults of the model for fields that a request does not set, such as "temperature 0.6, top_k 20".
std::string Defaults(const v1::GetModelResponse& model) {
  std::vector<std::string> parts;
  const v1::SamplingParams& sampling = model.default_sampling();
  for (const SamplingField& field : kSamplingFields) {
    if (!HasNumber(sampling, field.name)) continue;
    const double value = NumberOf(sampling, field.name);
    parts.push_back(field.counts_tokens() ? absl::StrCat(field.name, " ", static_cast<uint32_t>(value))
                                          : absl::StrCat(field.name, " ", static_cast<float>(value)));
  }
  if (model.has_default_max_tokens()) parts.push_back(absl::StrCat("max_tokens ", model.default_max_tokens()));
  return absl::StrJoin(parts, ", ");
}

// Says which tokens the tokenizer puts in front of a text, and why. It asks for the tokens of a text with and without
// the special ones.
std::string BeginTokens(const v1::GetModelResponse& model, Client* client) {
  v1::TokenizeRequest request;
  request.set_text("a");
  const absl::StatusOr<v1::TokenizeResponse> with = client->Tokenize(request);
  request.set_add_special_tokens(false);
  const absl::StatusOr<v1::TokenizeResponse> without = client->Tokenize(request);
  if (!with.ok() || !without.ok()) return "unknown: the manager does not tokenize the text \"a\"";
  const auto& tokens = with->token_ids();
  const auto text = std::search(tokens.begin(), tokens.end(), without->token_ids().begin(), without->token_ids().end());
  std::vector<std::string> added;
  for (int i = 0; i < text - tokens.begin(); ++i) added.push_back(absl::StrCat(with->pieces(i), " (", tokens[i], ")"));
  constexpr const char* kWhere =
      "post_processor in tokenizer.json, add_bos_token for a tokenizer.model, or tokenizer.ggml.add_bos_token in GGUF";
  if (!added.empty())
    return absl::StrCat(absl::StrJoin(added, " "), " is added, because the tokenizer says so: ", kWhere);
  if (!model.has_bos_token_id()) return "none is added: the model has no BOS token";
  return absl::StrCat("none is added, although the model has token ", model.bos_token_id(),
                      ": the tokenizer does not ask for it (", kWhere, ")");
}

int RunModel(const NoOptions& /*options*/, const CommandContext& context) {
  Client client(context.client);
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok()) return ReportError(model.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*model);
    return kExitOk;
  }
  std::printf(
      "name          %s\narchitecture  %s\nvocabulary    %u tokens\ncontext       %u tokens\nend tokens    %s\n",
      model->name().c_str(), model->architecture().c_str(), model->vocab_size(), model->max_context_tokens(),
      absl::StrJoin(model->eos_token_ids(), ", ").c_str());
  if (const std::string defaults = Defaults(*model); !defaults.empty())
    std::printf("defaults      %s\n", defaults.c_str());
  if (!model->numerics_fingerprint().empty()) std::printf("numerics      %s\n", model->numerics_fingerprint().c_str());
  if (!model->has_tokenizer()) std::printf("tokenizer     none: prompts are token ids\n");
  if (model->has_tokenizer()) std::printf("BOS           %s\n", BeginTokens(*model, &client).c_str());
  std::printf("chat          %s\n",
              model->has_chat_template() ? "yes" : "no: there is no chat template that can be used");
  if (!model->tool_call_format().empty()) std::printf("tool calls    %s\n", model->tool_call_format().c_str());
  if (!model->reasoning_format().empty()) std::printf("reasoning     %s\n", model->reasoning_format().c_str());
  return kExitOk;
}

}  // namespace

void AddModelCommand(CommandList* list) {
  list->Add("model", "Describe the model that the manager serves.", RunModel);
}

}  // namespace quire
