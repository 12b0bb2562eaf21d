// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/response_call.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/openai/chat_fields.h"
#include "gateway/openai/generate_fields.h"
#include "gateway/openai/guide_fields.h"
#include "gateway/responses/input_reader.h"
#include "gateway/responses/response_settings.h"
#include "gateway/responses/response_tools.h"

namespace quire {
namespace {

constexpr char kStateless[] =
    "this server stores no responses; send the whole conversation in input: the items of the former inputs and "
    "outputs, "
    "and behind them the new ones";

// What other values of include ask for belongs to tools and images that this server does not have.
constexpr absl::string_view kEmptyIncludes[] = {
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "web_search_call.action.sources",        "web_search_call.results",
};

// Returns whether the answer shall have logprobs.
bool ReadInclude(FieldReader* fields, ResponseSettings* settings) {
  const Json* const include = fields->Find("include");
  if (include == nullptr) return false;
  bool has_logprobs = false;
  for (const std::string& value : fields->Strings("include")) {
    if (value == "message.output_text.logprobs") {
      has_logprobs = true;
    } else if (value == "reasoning.encrypted_content") {
      settings->keeps_thoughts = true;
    } else if (std::find(std::begin(kEmptyIncludes), std::end(kEmptyIncludes), value) == std::end(kEmptyIncludes)) {
      fields->Fail("include", absl::StrCat("has ", Dump(value), ", which is not known to this server"));
    }
  }
  return has_logprobs;
}

void ReadLogprobs(bool is_included, FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  const std::optional<uint32_t> top = fields->Count("top_logprobs", 0, kMaxAlternatives);
  if (!is_included && top.value_or(0) > 0) {
    fields->Fail("top_logprobs", "needs \"message.output_text.logprobs\" in include");
  }
  if (!is_included) return;
  call->logprobs = top.value_or(0);
  request->set_logprobs(*call->logprobs);
}

void ReadStream(FieldReader* fields, GenerateCall* call) {
  call->streams = fields->Bool("stream").value_or(false);
  const Json* const options = fields->Object("stream_options");
  if (options == nullptr) return;
  FieldReader reader(*options, "stream_options.", fields);
  call->has_obfuscation = reader.Bool("include_obfuscation").value_or(false);
  if (call->has_obfuscation && !call->streams) reader.Fail("include_obfuscation", "is true, but stream is not");
  reader.AcceptOnly("resumable", "[false]", "a response is not sent again; use /v1/chat/completions");
  reader.RefuseOthers();
}

// The chat template gets the effort of reasoning and the verbosity.
void ReadReasoningAndText(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  TemplateVariable effort{.name = "reasoning_effort", .field = "reasoning.effort"};
  TemplateVariable verbosity{.name = "verbosity", .field = "text.verbosity"};
  if (const Json* const reasoning = fields->Object("reasoning"); reasoning != nullptr) {
    FieldReader reader(*reasoning, "reasoning.", fields);
    effort.value = reader.String("effort");
    // Thoughts are sent as they are. The chat template decides which of them the model sees again.
    reader.Ignore({"summary", "generate_summary", "context"});
    reader.AcceptOnly("mode", R"(["standard"])", "the model has one mode");
    reader.RefuseOthers();
  }
  if (const Json* const text = fields->Object("text"); text != nullptr) {
    FieldReader reader(*text, "text.", fields);
    verbosity.value = reader.String("verbosity");
    ReadTextFormat(&reader, request, call);
    reader.RefuseOthers();
  }
  ReadTemplateVariables({effort, verbosity}, fields, request->mutable_chat());
}

void ReadNeutralFields(FieldReader* fields) {
  fields->Refuse("previous_response_id", kStateless);
  fields->Refuse("conversation", kStateless);
  fields->Refuse("prompt", "this server stores no prompts; send its text in instructions and input");
  fields->AcceptOnly("background", "[false]",
                     "this server stores no responses; ask for a stream, or set the header X-Request-Timeout");
  fields->AcceptOnly("truncation", R"(["disabled"])", "a prompt is never cut; leave the oldest items of input out");
  fields->AcceptOnly("context_management", "[[]]", "this server shortens no conversation");
  fields->AcceptOnly("moderation", "[]", "this server does not moderate");
  fields->Bool("store");  // Without the field it would be true, so clients do not ask for anything by it.
  fields->Object("metadata");
  fields->Count("max_tool_calls");  // Of tools that run on a server.
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "service_tier"}) fields->String(name);
  fields->Ignore({"prompt_cache_retention", "prompt_cache_options", "client_metadata"});
}

// Returns the members of the answer that repeat the request.
std::string EchoOf(const Json& body, const GenerateCall& call) {
  Json echo = {{"background", false}, {"previous_response_id", nullptr}, {"service_tier", "default"}};
  for (const char* name : {"instructions", "max_output_tokens", "max_tool_calls", "prompt_cache_key",
                           "safety_identifier", "temperature", "top_p", "user"}) {
    echo[name] = body.value(name, Json());
  }
  const auto given = [&body](const char* name, Json otherwise) {
    const auto value = body.find(name);
    return value == body.end() || value->is_null() ? otherwise : *value;
  };
  echo["metadata"] = given("metadata", Json::object());
  echo["parallel_tool_calls"] = call.has_parallel_tool_calls;
  const Json reasoning = given("reasoning", Json::object());
  echo["reasoning"] = {{"effort", reasoning.value("effort", Json())}, {"summary", reasoning.value("summary", Json())}};
  echo["store"] = false;
  Json text = given("text", Json::object());
  if (text.value("format", Json()).is_null()) text["format"] = {{"type", "text"}};
  echo["text"] = std::move(text);
  echo["tool_choice"] = given("tool_choice", "auto");
  echo["tools"] = given("tools", Json::array());
  echo["top_logprobs"] = call.logprobs.value_or(0);
  echo["truncation"] = "disabled";
  const std::string object = Dump(echo);
  return object.substr(1, object.size() - 2);
}

}  // namespace

std::variant<GenerateCall, ApiError> ReadResponseCall(const Json& body, UnknownFields unknown) {
  const auto settings = std::make_shared<ResponseSettings>();
  // The answer ends where the context does, also if max_output_tokens is more than that.
  GenerateCall call{
      .is_chat = true,
      .response = settings,
      .has_max_tokens = false,
      .names = {.max_tokens = std::nullopt, .logprobs = "top_logprobs", .prompt = "input", .guide = "text.format"}};
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  v1::GenerateRequest request;
  call.model = fields.String("model").value_or("");
  ReadSamplingNumbers(&fields, request.mutable_sampling());
  if (const std::optional<uint32_t> max_tokens = fields.Count("max_output_tokens", 1)) {
    request.mutable_stopping()->set_max_tokens(*max_tokens);
    call.names.max_tokens = "max_output_tokens";
  }
  ReadStream(&fields, &call);
  InputReader(request.mutable_chat(), &call.names).Read(&fields);
  ReadReasoningAndText(&fields, &request, &call);
  ReadResponseTools(&fields, &request, &call, settings.get());
  ReadLogprobs(ReadInclude(&fields, settings.get()), &fields, &request, &call);
  ReadNeutralFields(&fields);
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  settings->echo = EchoOf(body, call);
  call.num_bytes = settings->echo.size();
  call.requests.push_back(std::move(request));
  return call;
}

}  // namespace quire
