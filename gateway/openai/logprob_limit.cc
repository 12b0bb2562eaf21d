// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/logprob_limit.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// The logprobs of each prompt token, in all places of the answer.
uint64_t LogprobsPerPromptToken(const GenerateCall& call) {
  uint64_t copies = 0;
  if (call.has_prompt_logprobs) copies += call.is_chat ? 1 : call.num_choices;
  if (call.echoes_logprobs) copies += call.num_choices;
  return copies == 0 ? 0 : copies * (1 + uint64_t{call.prompt_logprobs});
}

// The logprobs of each token that all choices of a prompt generate.
uint64_t LogprobsPerToken(const GenerateCall& call) {
  if (!call.logprobs.has_value()) return 0;
  // A stream sends them at once. That of a response repeats them at its end.
  if (call.streams && call.response == nullptr) return 0;
  return call.num_choices * (1 + uint64_t{*call.logprobs});
}

uint64_t OfPrompts(const GenerateCall& call) {
  uint64_t num_tokens = 0;
  for (const v1::GenerateRequest& request : call.requests) {
    num_tokens += request.has_token_ids() ? static_cast<uint64_t>(request.token_ids().ids_size()) : 1;
  }
  return num_tokens * LogprobsPerPromptToken(call);
}

}  // namespace

uint64_t ExpectedLogprobs(const GenerateCall& call, uint32_t max_context_tokens) {
  const uint64_t max_tokens = std::min(call.requests[0].stopping().max_tokens(), max_context_tokens);
  return OfPrompts(call) + call.requests.size() * max_tokens * LogprobsPerToken(call);
}

uint32_t RoomForLogprobs(const GenerateCall& call, uint32_t room, uint64_t limit) {
  const uint64_t per_token = LogprobsPerToken(call);
  if (per_token == 0) return room;
  const uint64_t left = limit - std::min(limit, OfPrompts(call));
  return static_cast<uint32_t>(std::clamp<uint64_t>(left / per_token, 1, room));
}

ApiError TooManyLogprobs(const GenerateCall& call, uint64_t num_logprobs, uint64_t limit) {
  const bool is_of_prompt = LogprobsPerPromptToken(call) > 0;
  const std::string field = is_of_prompt && call.has_prompt_logprobs ? "prompt_logprobs" : call.names.logprobs;
  const uint32_t value = is_of_prompt ? call.prompt_logprobs : call.logprobs.value_or(0);
  return FieldError(field, absl::StrCat("is ", value, ", and with ", call.requests.size(),
                                        call.requests.size() == 1 ? " prompt" : " prompts", " and n ", call.num_choices,
                                        " the answer has at least ", num_logprobs, " logprobs; at most ", limit,
                                        " are allowed (--max-answer-logprobs)"));
}

}  // namespace quire
