// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_GENERATE_CALL_H_
#define QUIRE_GATEWAY_OPENAI_GENERATE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/forced_calls.h"
#include "gateway/openai/logprobs_json.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// This is what a client has asked for with /v1/completions or /v1/chat/completions, in the words of quire.v1.
struct GenerateCall {
  bool is_chat = false;
  std::string model = {};  // It is empty if the client names none.
  // One request for each prompt. Only the prompts differ. Their names are not set yet.
  std::vector<v1::GenerateRequest> requests = {};
  size_t num_bytes = 0;      // The size of these messages. Counting the bytes of many tokens takes time.
  uint32_t num_choices = 1;  // Each prompt gets so many. Choice i of prompt p has the index p * num_choices + i.
  bool streams = false;
  bool is_resumable = false;                        // The client of a stream may come back and go on with it.
  bool includes_usage = false;                      // A last event of a stream has the usage.
  bool includes_running_usage = false;              // Every event of a stream has the usage of its choice so far.
  std::optional<uint32_t> logprobs = std::nullopt;  // The number of alternatives at each position.
  bool echoes_logprobs = false;                     // The logprobs of a completion begin with those of the prompt.
  bool has_prompt_logprobs = false;                 // The client asked for prompt_logprobs, an extra of vLLM.
  uint32_t prompt_logprobs = 0;                     // The number of alternatives at each position of the prompt.
  bool returns_token_ids = false;                   // The client asked for the ids of all tokens, an extra of vLLM.
  TokenName token_name = TokenName::kText;          // Logprobs name tokens so.
  bool has_obfuscation = false;                     // Events of a stream have a length that tells little.
  bool has_max_tokens = true;           // The client of a chat has set it. Otherwise the answer may fill the context.
  ApiNames names = {};                  // The names of fields that this call uses.
  bool may_call_tools = false;          // The client has tools, and wants calls of them.
  std::vector<std::string> tools = {};  // Their names.
  bool has_parallel_tool_calls = true;  // Otherwise the answer has at most one call.
  // With tool_choice, the answer consists of calls of these. It is empty if the model chooses whether it calls any.
  std::vector<CallableTool> forced_tools = {};
  bool names_tool = false;  // The client has named the only one of them. The answer has one call.
};

// These functions translate the body of a request. They check every type, and refuse what is not supported by its name.
// The manager checks the ranges of most values.
std::variant<GenerateCall, ApiError> ReadCompletionCall(const Json& body);
std::variant<GenerateCall, ApiError> ReadChatCall(const Json& body);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_GENERATE_CALL_H_
