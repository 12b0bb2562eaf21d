// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CALL_ANSWER_H_
#define QUIRE_GATEWAY_OPENAI_CALL_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gateway/openai/answer_parser.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/stream_position.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Every answer of a call begins with these fields.
struct AnswerHead {
  std::string id;
  int64_t created_unix_sec = 0;
  std::string model;
};

// Builds the answer to a GenerateCall from the responses of the manager, in the form of one HTTP interface: events if
// the call is a stream, otherwise a body. Not thread-safe.
class CallAnswer {
 public:
  virtual ~CallAnswer() = default;

  // Says what to look for in the text. By default all of it is content. REQUIRES: nothing was added.
  virtual void SetSyntax(AnswerSyntax syntax) = 0;

  // The prompt has ended in the thoughts of the model, or not. REQUIRES: nothing was added.
  virtual void SetBeginsInReasoning(bool begins_in_reasoning) = 0;

  // Sets the ids of the tokens of a prompt. REQUIRES: the client asked for token ids, and nothing was added.
  virtual void SetPromptTokens(size_t /*prompt*/, std::vector<uint32_t> /*ids*/) {}

  // Continues a stream that the client has read up to this position. REQUIRES: the call is resumable.
  virtual void ResumeBehind(const StreamPosition& /*position*/) {}

  // Takes a response for the prompt with this number. Returns server-sent events to send now, which is empty if the
  // call is no stream.
  virtual std::string Add(size_t prompt_index, const v1::GenerateResponse& response) = 0;

  // Returns the last events of a stream. Call it once. REQUIRES: the requests of all prompts have ended.
  virtual std::string LastEvents() = 0;

  // Returns the body of an answer that is no stream. Call it once. REQUIRES: the requests of all prompts have ended.
  virtual std::string Body() = 0;

  // Returns the event for an error after the beginning of a stream. `request_id` is the name of the HTTP request.
  virtual std::string ErrorEvent(const ApiError& error, const std::string& request_id) const = 0;

  // Returns the memory that the parts of the answer take until they are sent, in bytes.
  virtual size_t num_bytes() const = 0;
  // Returns the number of logprobs of the answer so far; one that appears twice counts twice. Logprobs that a stream
  // has sent do not count.
  virtual size_t num_logprobs() const { return 0; }
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CALL_ANSWER_H_
