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
#include "gateway/openai/generate_call.h"
#include "gateway/openai/logprobs_json.h"
#include "gateway/openai/stream_position.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Every answer of a call begins with these fields.
struct AnswerHead {
  std::string id;
  int64_t created_unix_sec = 0;
  std::string model;
};

// Builds the answer to a call of completions or chats from the responses of the manager: events if the call is a
// stream, otherwise a body. Not thread-safe.
class GenerateAnswer {
 public:
  GenerateAnswer(const GenerateCall& call, const AnswerHead& head);
  // Returns num_bytes() of a new one.
  static size_t BytesAtStart(const GenerateCall& call) {
    return call.requests.size() * (sizeof(Prompt) + call.num_choices * sizeof(Choice));
  }

  // Says what to look for in the text. By default all of it is content. REQUIRES: nothing was added.
  void SetSyntax(AnswerSyntax syntax);

  // The prompt has ended in the thoughts of the model, or not. REQUIRES: nothing was added.
  void SetBeginsInReasoning(bool begins_in_reasoning);

  // Sets the ids of the tokens of a prompt. REQUIRES: the client asked for token ids, and nothing was added.
  void SetPromptTokens(size_t prompt, std::vector<uint32_t> ids) { prompts_[prompt].token_ids = std::move(ids); }

  // Goes on with a stream that the client has read up to here.
  void ResumeBehind(const StreamPosition& position);

  // Takes a response for the prompt with this number. Returns server-sent events to send now, which is empty if the
  // call is no stream.
  std::string Add(size_t prompt_index, const v1::GenerateResponse& response);

  // Returns the last events of a stream: the usage if the client asked for it, and the mark of the end. REQUIRES: the
  // requests of all prompts have ended.
  std::string LastEvents() const;

  // Returns the body of an answer that is no stream. Call it once. REQUIRES: the requests of all prompts have ended.
  std::string Body();

  // Returns the memory that the parts of the answer take until they are sent, in bytes.
  size_t num_bytes() const { return num_bytes_; }
  // Returns how many logprobs have come for the answer, as often as it has them. Those of the tokens that a stream has
  // sent do not count.
  size_t num_logprobs() const { return num_logprobs_; }

  // Returns the event for an error after the beginning of a stream.
  static std::string ErrorEvent(const ApiError& error);

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
    std::string finish_reason;        // It is empty until the end.
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
