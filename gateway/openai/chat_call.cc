#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/openai/chat_fields.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/generate_fields.h"

namespace quire {
namespace {

// The names of the functions in the list of tools. A tool without one is for the chat template to judge.
std::vector<std::string> ToolNames(const Json& tools) {
  std::vector<std::string> names;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    const Json& named = function != tool.end() && function->is_object() ? *function : tool;
    const auto name = named.find("name");
    if (name != named.end() && name->is_string()) names.push_back(name->get<std::string>());
  }
  return names;
}

void ReadToolChoice(FieldReader* fields, v1::Chat* chat, GenerateCall* call) {
  const Json* const choice = fields->Find("tool_choice");
  const Json* const tools = fields->Find("tools");
  if (tools != nullptr && tools->is_array()) call->tools = ToolNames(*tools);
  call->may_call_tools = !chat->tools().empty() && (choice == nullptr || *choice == "auto");
  call->has_parallel_tool_calls = fields->Bool("parallel_tool_calls").value_or(true);
  if (choice != nullptr && *choice == "none") {
    chat->clear_tools();  // A model that knows no tools calls none.
  } else if (choice != nullptr && *choice != "auto") {
    fields->Fail({.message = "tool_choice is not supported, except for auto and none",
                  .param = "tool_choice",
                  .code = "unsupported_parameter"});
  }
  fields->Refuse("functions", "OpenAI has replaced it by tools");
  fields->Refuse("function_call", "OpenAI has replaced it by tool_choice");
}

void ReadMaxTokens(FieldReader* fields, v1::StoppingParams* stopping, GenerateCall* call) {
  const std::optional<uint32_t> max_tokens = fields->Count("max_tokens", 1);
  const std::optional<uint32_t> max_completion_tokens = fields->Count("max_completion_tokens", 1);
  if (max_completion_tokens.has_value()) call->names.max_tokens = "max_completion_tokens";
  call->has_max_tokens = max_tokens.has_value() || max_completion_tokens.has_value();
  if (call->has_max_tokens) {
    stopping->set_max_tokens(max_completion_tokens.has_value() ? *max_completion_tokens : *max_tokens);
  }
}

void ReadLogprobs(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  const bool has_logprobs = fields->Bool("logprobs").value_or(false);
  const std::optional<uint32_t> top = fields->Count("top_logprobs", 0, kMaxAlternatives);
  if (top.value_or(0) > 0 && !has_logprobs) return fields->Fail("top_logprobs", "needs logprobs to be true");
  if (!has_logprobs) return;
  call->logprobs = top.value_or(0);
  request->set_logprobs(*call->logprobs);
}

}  // namespace

std::variant<GenerateCall, ApiError> ReadChatCall(const Json& body) {
  FieldReader fields(body);
  GenerateCall call{.is_chat = true, .names = {.logprobs = "top_logprobs"}};
  v1::GenerateRequest request;
  ReadGenerateFields(&fields, &request, &call);
  ReadMaxTokens(&fields, request.mutable_stopping(), &call);
  ReadLogprobs(&fields, &request, &call);
  ReadChatFields(&fields, request.mutable_chat());
  ReadToolChoice(&fields, request.mutable_chat(), &call);
  fields.Refuse("audio", "the model writes text only");
  fields.Refuse("modalities", "the model writes text only");
  fields.Refuse("web_search_options", "this server does not search the web");
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  call.requests.push_back(std::move(request));
  return call;
}

}  // namespace quire
