// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tokenize_call.h"

#include <utility>

#include "gateway/openai/chat_fields.h"

namespace quire {

std::variant<TokenizeCall, ApiError> ReadTokenizeCall(const Json& body, UnknownFields unknown) {
  TokenizeCall call;
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  call.model = fields.String("model").value_or("");
  call.returns_strings = fields.Bool("return_token_strs").value_or(false);
  if (fields.Find("messages") != nullptr) {
    v1::Chat chat;
    ReadChatFields(&fields, &chat);
    fields.Refuse("prompt", "the request has messages already");
    fields.AcceptOnly("media_io_kwargs", "[{}]", "the model reads text only");
    fields.AcceptOnly("mm_processor_kwargs", "[{}]", "the model reads text only");
    if (fields.Bool("add_special_tokens").value_or(false)) {
      fields.Fail("add_special_tokens", "is true, but the chat template writes these tokens");
    }
    call.prompt = std::move(chat);
  } else {
    v1::TokenizeRequest request;
    if (const auto prompt = fields.String("prompt")) {
      request.set_text(*prompt);
    } else {
      fields.Fail("prompt", "is missing");
    }
    if (const auto value = fields.Bool("add_special_tokens")) request.set_add_special_tokens(*value);
    call.prompt = std::move(request);
  }
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  return call;
}

std::variant<DetokenizeCall, ApiError> ReadDetokenizeCall(const Json& body, UnknownFields unknown) {
  DetokenizeCall call;
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  call.model = fields.String("model").value_or("");
  if (fields.Find("tokens") == nullptr) fields.Fail("tokens", "is missing");
  for (const uint32_t id : fields.TokenIds("tokens")) call.request.add_token_ids(id);
  call.request.set_skip_special_tokens(false);
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  return call;
}

std::string DetokenizeBody(const v1::DetokenizeResponse& response) {
  return Dump(Json{{"prompt", response.text()}});
}

}  // namespace quire
