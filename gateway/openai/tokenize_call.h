// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TOKENIZE_CALL_H_
#define QUIRE_GATEWAY_OPENAI_TOKENIZE_CALL_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_text.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// What a client has asked for with vLLM's /tokenize: the tokens of a text or of a conversation.
struct TokenizeCall {
  std::string model;  // Empty if the client names none.
  std::variant<v1::TokenizeRequest, v1::Chat> prompt;
  bool returns_strings = false;  // The answer has the text of each token as well.
  IgnoredFields ignored = {};
};

// What a client has asked for with vLLM's /detokenize.
struct DetokenizeCall {
  std::string model;  // Empty if the client names none.
  v1::DetokenizeRequest request;
  IgnoredFields ignored = {};
};

std::variant<TokenizeCall, ApiError> ReadTokenizeCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);
std::variant<DetokenizeCall, ApiError> ReadDetokenizeCall(const Json& body,
                                                          UnknownFields unknown = UnknownFields::kRefuse);

// The answer of /tokenize. `Response` has token_ids and pieces.
template <typename Response>
std::string TokenizeBody(const TokenizeCall& call, const Response& response, uint32_t max_context_tokens) {
  std::string body = absl::StrCat("{\"count\":", response.token_ids_size(), ",\"max_model_len\":", max_context_tokens,
                                  ",\"tokens\":[", absl::StrJoin(response.token_ids(), ","), "],\"token_strs\":");
  if (!call.returns_strings) return body + "null}";
  body += '[';
  for (const std::string& piece : response.pieces()) {
    if (body.back() != '[') body += ',';
    AppendJsonString(piece, &body);
  }
  return body + "]}";
}

// The answer of /detokenize.
std::string DetokenizeBody(const v1::DetokenizeResponse& response);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TOKENIZE_CALL_H_
