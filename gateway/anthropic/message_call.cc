// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gateway/anthropic/cache_breakpoints.h"
#include "gateway/anthropic/conversation_reader.h"
#include "gateway/anthropic/message_tools.h"
#include "gateway/openai/generate_fields.h"

namespace quire {
namespace {

// Returns whether the model shall think. Without the field it shall not, as in Anthropic's interface.
bool ReadThinking(FieldReader* fields) {
  const Json* const thinking = fields->Object("thinking");
  if (thinking == nullptr) return false;
  FieldReader reader(*thinking, "thinking.", fields);
  const std::string type = reader.String("type").value_or("");
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    reader.Fail("type", reader.Find("type") == nullptr
                            ? "is missing"
                            : absl::StrCat("is ", Dump(type), ", it must be enabled, disabled or adaptive"));
  }
  reader.Count("budget_tokens");  // Only max_tokens limits an answer.
  reader.Ignore({"display"});
  reader.RefuseOthers();
  return type != "disabled";
}

// Reads {"type": "json_schema", "schema": {...}}.
void ReadFormat(const char* name, const std::string& path, FieldReader* fields, v1::GenerateRequest* request,
                GenerateCall* call) {
  const Json* const format = fields->Object(name);
  if (format == nullptr) return;
  FieldReader reader(*format, path + ".", fields);
  const std::string type = reader.String("type").value_or("");
  if (type != "json_schema") reader.Fail("type", absl::StrCat("is ", Dump(type), ", it must be json_schema"));
  const Json* const schema = reader.Object("schema");
  if (schema == nullptr) {
    reader.Fail("schema", "is missing");
  } else if (request->has_guided()) {
    fields->Fail(name, absl::StrCat("cannot be combined with ", call->names.guide));
  } else {
    request->mutable_guided()->set_json_schema(Dump(*schema));
    call->names.guide = path + ".schema";
  }
  reader.Ignore({"name"});
  reader.RefuseOthers();
}

// Returns the effort, which is a variable of the templates that know it.
std::optional<std::string> ReadOutputConfig(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  ReadFormat("output_format", "output_format", fields, request, call);
  const Json* const config = fields->Object("output_config");
  if (config == nullptr) return std::nullopt;
  FieldReader reader(*config, "output_config.", fields);
  std::optional<std::string> effort = reader.String("effort");
  ReadFormat("format", "output_config.format", &reader, request, call);
  reader.RefuseOthers();
  return effort;
}

// The chat template decides which thoughts of the history the model sees, so only edits of thoughts ask for nothing.
void ReadContextManagement(FieldReader* fields) {
  const Json* const management = fields->Object("context_management");
  if (management == nullptr) return;
  FieldReader reader(*management, "context_management.", fields);
  const Json* const edits = reader.Find("edits");
  if (edits != nullptr && !edits->is_array())
    reader.Fail("edits", absl::StrCat(Describe(*edits), ", it must be a list"));
  for (size_t i = 0; edits != nullptr && edits->is_array() && i < edits->size(); ++i) {
    const Json type = (*edits)[i].is_object() ? (*edits)[i].value("type", Json()) : Json();
    if (type.is_string() && absl::StartsWith(type.get<std::string>(), "clear_thinking_")) continue;
    reader.Fail(absl::StrCat("edits[", i, "].type"),
                absl::StrCat(Describe(type), ", which is not supported: this server shortens no conversation"));
  }
  reader.RefuseOthers();
}

void ReadNeutralFields(FieldReader* fields) {
  fields->AcceptOnly("container", "[]", "this server runs no code");
  fields->AcceptOnly("mcp_servers", "[[]]", "this server calls no other servers");
  fields->AcceptOnly("speed", R"(["standard"])", "this server has one speed");
  fields->Object("metadata");
  fields->Ignore({"service_tier", "inference_geo", "diagnostics"});
}

std::variant<GenerateCall, ApiError> ReadCall(const Json& body, UnknownFields unknown, bool needs_max_tokens) {
  // The answer ends where the context does, also if max_tokens is more than that.
  GenerateCall call{.is_chat = true,
                    .is_message = true,
                    .has_max_tokens = false,
                    .names = {.prompt = "messages", .stop = "stop_sequences", .template_variables = "thinking"}};
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  v1::GenerateRequest request;
  call.model = fields.String("model").value_or("");
  const std::optional<uint32_t> max_tokens = fields.Count("max_tokens");
  call.only_fills_cache = max_tokens == 0;
  if (max_tokens.has_value()) request.mutable_stopping()->set_max_tokens(std::max(*max_tokens, 1u));
  if (!max_tokens.has_value() && needs_max_tokens) fields.Fail("max_tokens", "is missing");
  ReadSamplingNumbers(&fields, request.mutable_sampling());
  for (const std::string& text : fields.Strings("stop_sequences")) request.mutable_stopping()->add_stop(text);
  call.streams = fields.Bool("stream").value_or(false);
  ConversationReader conversation(request.mutable_chat(), &call.names);
  conversation.Read(&fields);
  Json variables = {{"enable_thinking", ReadThinking(&fields)}};
  if (const auto effort = ReadOutputConfig(&fields, &request, &call)) variables["reasoning_effort"] = *effort;
  request.mutable_chat()->set_template_kwargs(Dump(variables));
  CacheBreakpoints breakpoints = ReadMessageTools(conversation.referenced_tools(), &fields, &request, &call);
  breakpoints.insert(breakpoints.end(), conversation.breakpoints().begin(), conversation.breakpoints().end());
  AddCacheBreakpoints(breakpoints, &fields, &request);
  ReadContextManagement(&fields);
  ReadNeutralFields(&fields);
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  for (const v1::PrefixPin& pin : request.pins()) call.pin_seconds.push_back(pin.ttl_seconds());
  call.requests.push_back(std::move(request));
  return call;
}

}  // namespace

std::variant<GenerateCall, ApiError> ReadMessageCall(const Json& body, UnknownFields unknown) {
  return ReadCall(body, unknown, /*needs_max_tokens=*/true);
}

std::variant<GenerateCall, ApiError> ReadCountTokensCall(const Json& body, UnknownFields unknown) {
  return ReadCall(body, unknown, /*needs_max_tokens=*/false);
}

std::string CountTokensBody(const v1::RenderChatResponse& prompt) {
  return absl::StrCat("{\"input_tokens\":", prompt.token_ids_size(), "}");
}

}  // namespace quire
