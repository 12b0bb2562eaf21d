// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_API_ERROR_H_
#define QUIRE_GATEWAY_OPENAI_API_ERROR_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"

namespace quire {

// An error of the OpenAI interface.
struct ApiError {
  int http_code = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param = std::nullopt;  // The field of the request that must be corrected.
  std::optional<std::string> code = std::nullopt;   // A word that programs can compare.
  std::optional<int> retry_after_s = std::nullopt;  // Seconds after which the request may be sent again.

  // {"error": {...}}
  std::string Body() const;
};

// The error of a field, which comes first in the message.
ApiError FieldError(absl::string_view field, absl::string_view description);

// Names of fields that differ between requests of the OpenAI interface.
struct ApiNames {
  // The field of the request that has set max_tokens. It is empty if none has: the gateway or the manager has chosen a
  // limit.
  std::optional<std::string> max_tokens = "max_tokens";
  std::string logprobs = "logprobs";      // The field that has the number of alternatives.
  std::string prompt = "prompt";          // The field that has the text or the tokens.
  std::string num_samples = "n";          // The field that has the largest number of samples or beams.
  std::string guide = "response_format";  // The field that says what the output must be.
  std::string stop = "stop";              // The field that has the stop strings.
  std::string template_variables = "chat_template_kwargs";
  std::string tool_parameters = "function.parameters";  // The field of a tool that has the schema of its arguments.
  // The field that has each message of the chat, if the messages of the client are others.
  std::vector<std::string> messages = {};
  // The field that has each input of a request for embeddings.
  std::vector<std::string> inputs = {};
};

// The codes of errors of the connection to the manager.
inline constexpr char kNoManager[] = "no_manager";
inline constexpr char kManagerLost[] = "manager_lost";

// Converts the status with which the manager has ended a request, or with which the connection to it has failed. Field
// paths of the manager become the names that the OpenAI interface and vLLM have, also within its sentences.
ApiError ToApiError(const google::rpc::Status& status, const ApiNames& names = {});

// Returns the OpenAI or vLLM name of a field path of GenerateRequest, such as "max_tokens" for "stopping.max_tokens",
// or "prompt[2]" for "token_ids.ids[2]".
std::string ApiFieldName(absl::string_view path, const ApiNames& names);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_API_ERROR_H_
