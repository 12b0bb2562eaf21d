// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_GENERATE_CALL_H_
#define QUIRE_GATEWAY_OPENAI_GENERATE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/forced_calls.h"
#include "gateway/openai/logprobs_json.h"
#include "gateway/openai/parameter_types.h"
#include "quire/v1/inference.pb.h"

namespace quire {

struct RerankSettings;
struct ResponseSettings;

// A request to /v1/completions, /v1/chat/completions, /v1/messages or /v1/responses, translated to messages of
// quire.v1; or one to /v1/rerank or /v1/score, if a reranker answers it.
struct GenerateCall {
  bool is_chat = false;
  bool is_message = false;  // It came to /v1/messages of Anthropic's interface. Then it is a chat as well.
  // It came to /v1/responses if this is set. Then it is a chat as well.
  std::shared_ptr<const ResponseSettings> response = nullptr;
  // It came to /v1/rerank or /v1/score if this is set. Then the prompts are made of it, see RerankCall.
  std::shared_ptr<const RerankSettings> rerank = nullptr;
  std::string model = {};  // Empty if the client names none.
  // One request for each prompt. Only the prompts differ. Their names are not set yet.
  std::vector<v1::GenerateRequest> requests = {};
  // The size of these messages, and of what the answer repeats. Counting the bytes of many tokens takes time.
  size_t num_bytes = 0;
  uint32_t num_choices = 1;  // Number for each prompt. Choice i of prompt p has the index p * num_choices + i.
  bool streams = false;
  bool is_resumable = false;                        // The client of a stream may come back and continue it.
  bool includes_usage = false;                      // A last event of a stream has the usage.
  bool includes_running_usage = false;              // Every event of a stream has the usage of its choice so far.
  std::optional<uint32_t> logprobs = std::nullopt;  // The number of alternatives at each position.
  bool echoes_logprobs = false;                     // A completion has the logprobs of the prompt, too.
  bool has_prompt_logprobs = false;                 // The client asked for prompt_logprobs, an extra of vLLM.
  uint32_t prompt_logprobs = 0;                     // The number of alternatives at each position of the prompt.
  bool returns_token_ids = false;                   // The client asked for the ids of all tokens, an extra of vLLM.
  TokenName token_name = TokenName::kText;          // Logprobs name tokens so.
  bool has_obfuscation = false;                     // Events of a stream have a length that tells little.
  // The client of a chat has set max_tokens. Otherwise the answer may fill the context, or what it leaves of
  // max_tokens.
  bool has_max_tokens = true;
  bool is_cut_to_context = false;          // The context leaves less than max_tokens.
  bool only_fills_cache = false;           // The max_tokens of a message are 0. Its answer leaves the one token out.
  std::vector<uint32_t> pin_seconds = {};  // The time of each pin of a message.
  ApiNames names = {};                     // The names of fields that this call uses.
  bool may_call_tools = false;             // The client has tools, and wants calls of them.
  std::vector<std::string> tools = {};     // Their names.
  std::map<std::string, ParameterTypes> parameters = {};  // Those of each tool, by its name.
  bool has_parallel_tool_calls = true;                    // Otherwise the answer has at most one call.
  // With tool_choice, the answer consists of calls of these. It is empty if the model chooses whether it calls any.
  std::vector<CallableTool> forced_tools = {};
  // All tools, if the model chooses and one of them is strict.
  std::vector<CallableTool> strict_tools = {};
  bool names_tool = false;  // The client has named the only one of them. The answer has one call.
  IgnoredFields ignored = {};
};

// These functions translate the body of a request. They check every type, and refuse what is not supported by its name.
// The manager checks the ranges of most values.
std::variant<GenerateCall, ApiError> ReadCompletionCall(const Json& body,
                                                        UnknownFields unknown = UnknownFields::kRefuse);
std::variant<GenerateCall, ApiError> ReadChatCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_GENERATE_CALL_H_
