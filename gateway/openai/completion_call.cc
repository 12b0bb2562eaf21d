// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/generate_fields.h"
#include "gateway/openai/neutral_fields.h"

namespace quire {
namespace {

constexpr size_t kMaxPrompts = 256;
// The request of each prompt has a copy of the other fields. This bounds all copies together.
constexpr size_t kMaxCopiedBytes = 16 << 20;

// Sets a text or a list of token ids as the prompt. Leaves an error with the name of what is none.
void SetPrompt(const Json& value, const std::string& name, FieldReader* fields, v1::GenerateRequest* request) {
  if (value.is_string()) return request->set_text(value.get<std::string>());
  if (!value.is_array()) {
    return fields->Fail(name, absl::StrCat(Describe(value), ", it must be a text or a list of token ids"));
  }
  if (value.empty()) return fields->Fail(name, "is empty");
  auto* const ids = request->mutable_token_ids()->mutable_ids();
  ids->Clear();  // The request may have the prompt before this one.
  ids->Reserve(static_cast<int>(value.size()));
  for (const Json& id : value) {
    if (!IsTokenId(id)) {
      return fields->Fail(absl::StrCat(name, "[", ids->size(), "]"), absl::StrCat(Describe(id), kNoTokenId));
    }
    ids->Add(id.get<uint32_t>());
  }
}

void ReadPrompts(FieldReader* fields, const v1::GenerateRequest& common, GenerateCall* call) {
  const Json* const prompt = fields->Find("prompt");
  if (prompt == nullptr) return fields->Fail("prompt", "is missing");
  if (!prompt->is_string() && (!prompt->is_array() || prompt->empty())) {
    return fields->Fail("prompt", absl::StrCat(prompt->is_array() ? "is empty" : Describe(*prompt),
                                               ", it must be a text, a list of token ids, or a list of these"));
  }
  v1::GenerateRequest request = common;
  if (prompt->is_string() || (*prompt)[0].is_number()) {
    SetPrompt(*prompt, "prompt", fields, &request);
    call->requests.push_back(std::move(request));
    return;
  }
  if (prompt->size() > kMaxPrompts) {
    return fields->Fail("prompt",
                        absl::StrCat("has ", prompt->size(), " prompts, at most ", kMaxPrompts, " are allowed"));
  }
  const size_t common_bytes = common.ByteSizeLong();
  if (common_bytes > kMaxCopiedBytes / prompt->size()) {
    return fields->Fail(
        "prompt", absl::StrCat("has ", prompt->size(), " prompts, and the other fields take ", common_bytes,
                               " bytes for each; at most ", kMaxCopiedBytes, " bytes are allowed for all together"));
  }
  for (size_t i = 0; i < prompt->size() && !fields->error().has_value(); ++i) {
    SetPrompt((*prompt)[i], absl::StrCat("prompt[", i, "]"), fields, &request);
    call->requests.push_back(request);
  }
}

}  // namespace

std::variant<GenerateCall, ApiError> ReadCompletionCall(const Json& body, UnknownFields unknown) {
  GenerateCall call;
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  v1::GenerateRequest request;
  ReadGenerateFields(&fields, &request, &call);
  if (const auto value = fields.Bool("echo")) request.set_echo(*value);
  const bool shows_prompt = request.echo() || request.has_prompt_logprobs();
  if (const auto value = fields.Count("max_tokens")) {
    if (*value == 0 && !shows_prompt) {
      fields.Fail("max_tokens", "is 0, which needs echo or prompt_logprobs, because the answer would be empty");
    }
    request.mutable_stopping()->set_max_tokens(*value);
  } else {
    call.names.max_tokens.reset();
  }
  if (const auto value = fields.Bool("add_special_tokens")) request.set_add_special_tokens(*value);
  if (const auto value = fields.Count("logprobs", 0, kMaxAlternatives)) {
    call.logprobs = *value;
    request.set_logprobs(*value);
    if (request.echo()) {
      call.echoes_logprobs = true;
      if (call.token_name == TokenName::kId) {
        fields.Fail("return_tokens_as_token_ids", "is true, which is not supported with both echo and logprobs");
      }
      if (!request.has_prompt_logprobs()) request.set_prompt_logprobs(*value);
      call.prompt_logprobs = request.prompt_logprobs();
    }
  }
  ReadNeutralFields(/*is_chat=*/false, &fields);
  ReadPrompts(&fields, request, &call);
  if (call.is_resumable) {
    if (call.requests.size() > 1) fields.Fail("stream_options.resumable", "is true, but there are several prompts");
    if (call.logprobs.has_value()) fields.Fail("stream_options.resumable", "is true, but the request has logprobs");
  }
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  return call;
}

}  // namespace quire
