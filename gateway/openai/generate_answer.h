// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_GENERATE_ANSWER_H_
#define QUIRE_GATEWAY_OPENAI_GENERATE_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/openai/answer_parser.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/call_answer.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/logprobs_json.h"
#include "gateway/openai/stream_position.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// The answer to a call of completions or chats, in the form of OpenAI.
class GenerateAnswer : public CallAnswer {
 public:
  GenerateAnswer(const GenerateCall& call, const AnswerHead& head);
  // Returns num_bytes() of a new one.
  static size_t BytesAtStart(const GenerateCall& call) {
    return call.requests.size() * (sizeof(Prompt) + call.num_choices * sizeof(Choice));
  }

  void SetSyntax(AnswerSyntax syntax) override;
  void SetBeginsInReasoning(bool begins_in_reasoning) override;
  void SetPromptTokens(size_t prompt, std::vector<uint32_t> ids) override {
    prompts_[prompt].token_ids = std::move(ids);
  }
  void ResumeBehind(const StreamPosition& position) override;
  std::string Add(size_t prompt_index, const v1::GenerateResponse& response) override;
  // The usage if the client asked for it, and the mark of the end.
  std::string LastEvents() override;
  std::string Body() override;
  std::string ErrorEvent(const ApiError& error, const std::string& request_id) const override;
  size_t num_bytes() const override { return num_bytes_; }
  size_t num_logprobs() const override { return num_logprobs_; }

 private:
  // One continuation of one prompt.
  struct Choice {
    bool has_begun = false;                             // The first event of a stream was made.
    bool has_prompt_logprobs = false;                   // An event of a stream has them.
    bool has_prompt_tokens = false;                     // An event of a stream has them.
    std::optional<uint32_t> prompt_tokens;              // The first response sets it.
    uint32_t completion_tokens = 0;                     // So far.
    AnswerText text;                                    // Not in a stream.
    std::optional<AnswerParser> parser = std::nullopt;  // Without it, all text is content.
    CompletionLogprobs completion_logprobs;
    std::string chat_logprobs;        // The entries of their list.
    std::vector<uint32_t> token_ids;  // Not in a stream, and only if the client asked for them.
    std::string finish_reason;        // Empty until the end.
    Json stop_reason = nullptr;
  };

  // What the answer has of a prompt.
  struct Prompt {
    bool has_logprobs = false;
    CompletionLogprobs echoed;        // The logprobs of a completion begin with them.
    std::string logprobs = "[]";      // The list prompt_logprobs.
    std::vector<uint32_t> token_ids;  // Only if the client asked for them.
    v1::Usage usage;
  };

  void SetId(const std::string& id);
  static AnswerText TextOf(Choice* choice, const v1::GenerateResponse& response);
  std::string FinishReasonOf(const Choice& choice, const v1::GenerateResponse& response) const;
  // Returns "usage" with its value for an event of a stream; empty if the client did not ask for it.
  std::string UsageMember(const Choice& choice, uint32_t completion_tokens) const;
  std::string EventsOf(Choice* choice, size_t index, const v1::GenerateResponse& response);
  void Collect(Choice* choice, const v1::GenerateResponse& response);
  // Appends a choice of an answer that is no stream, and frees its texts.
  void AppendChoice(size_t index, std::string* out);
  // Returns "prompt_logprobs" with its value for an event of a stream; empty if the choice has had them, if the client
  // did not ask for them, or if they have not come. In a chat they belong to the event and not to its choice, so the
  // first choice has them.
  std::string PromptLogprobsMember(Choice* choice, size_t index);
  // Returns "prompt_token_ids" with its value for the first event of a choice; empty for the others, or if the client
  // did not ask for it.
  std::string PromptTokensMember(Choice* choice, size_t index);
  // Converts the logprobs of the prompt, which come once.
  void AddPromptLogprobs(Prompt* prompt, const LogprobList& positions);
  // Adds the logprobs of a response to the choice, if the client asked for them.
  void AddLogprobs(Choice* choice, const Prompt& prompt, const v1::GenerateResponse& response);
  // Returns the logprobs that were added to the choice since the last call as JSON; "null" when there are none.
  std::string TakeLogprobs(Choice* choice) const;
  Json UsageJson() const;

  const GenerateCall& call_;
  AnswerHead head_;
  std::string event_begin_;  // Each event begins like this, up to the list of choices.
  AnswerSyntax syntax_;
  std::vector<Choice> choices_;
  std::vector<Prompt> prompts_;
  bool has_usage_ = false;
  size_t num_bytes_;
  size_t num_logprobs_ = 0;
  StreamPosition position_;  // Only streams that can be resumed use it.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_GENERATE_ANSWER_H_
