#include <cstdio>

#include "absl/strings/str_join.h"
#include "client/commands/commands.h"

namespace quire {
namespace {

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
  if (!model->numerics_fingerprint().empty()) std::printf("numerics      %s\n", model->numerics_fingerprint().c_str());
  if (!model->has_tokenizer()) std::printf("tokenizer     none: prompts are token ids\n");
  return kExitOk;
}

}  // namespace

void AddModelCommand(CommandList* list) {
  list->Add("model", "Describe the model that the manager serves.", RunModel);
}

}  // namespace quire
