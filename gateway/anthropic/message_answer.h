// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_ANTHROPIC_MESSAGE_ANSWER_H_
#define QUIRE_GATEWAY_ANTHROPIC_MESSAGE_ANSWER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/ordered_answer.h"

namespace quire {

// The answer to a call of /v1/messages, as Anthropic's interface has it: blocks of thoughts, texts and calls of tools
// in the order in which the model has written them. A stream has the same blocks as a body, however its text is
// divided.
class MessageAnswer : public OrderedAnswer {
 public:
  // `call` must outlive the answer.
  MessageAnswer(const GenerateCall& call, AnswerHead head);

  std::string Add(size_t prompt_index, const v1::GenerateResponse& response) override;
  // The end of the last block, why the answer has ended, and its usage.
  std::string LastEvents() override;
  std::string Body() override;
  std::string ErrorEvent(const ApiError& error, const std::string& request_id) const override;
  size_t num_bytes() const override { return num_bytes_; }

 private:
  enum class Kind { kThinking, kText, kToolUse };

  struct Block {
    Kind kind;
    std::string text = {};  // The thoughts, the text, or the JSON of the input. It is empty in a stream.
    std::string id = {};    // Of a call.
    std::string name = {};  // Of a call.
  };

  // These append events to `out` if the call is a stream.
  void BeginMessage(const v1::GenerateResponse& first, std::string* out);
  void BeginBlock(Block block, std::string* out);
  // Ends the last block, if there is one.
  void EndBlock(std::string* out);
  void AddThoughts(absl::string_view text, std::string* out) override { AddBlockText(Kind::kThinking, text, out); }
  void AddContent(absl::string_view text, std::string* out) override { AddBlockText(Kind::kText, text, out); }
  void BeginCall(const ToolCallDelta& call, std::string* out) override;
  void AddArguments(absl::string_view text, std::string* out) override { AddDelta(text, out); }
  // Adds to a block of this kind, which begins if the last one is of another kind.
  void AddBlockText(Kind kind, absl::string_view text, std::string* out);
  void AddDelta(absl::string_view text, std::string* out);
  // Appends {"id", "type", "role", "model", "content": [ up to the blocks.
  void AppendHead(std::string* out) const;
  static void AppendBlock(const Block& block, std::string* out);
  // Appends "stop_reason" and "stop_sequence" with their values.
  void AppendStop(std::string* out) const;
  const char* StopReason() const;
  void AppendUsage(const v1::Usage& usage, std::string* out) const;

  const GenerateCall& call_;
  bool has_begun_ = false;  // A response was added.
  std::vector<Block> blocks_;
  v1::Usage usage_;
  std::optional<v1::Usage> prompt_usage_;  // As the first response had it.
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<std::string> stop_;  // The stop sequence that has ended the answer.
  size_t num_bytes_ = 0;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_ANTHROPIC_MESSAGE_ANSWER_H_
