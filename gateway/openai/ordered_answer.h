// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_ORDERED_ANSWER_H_
#define QUIRE_GATEWAY_OPENAI_ORDERED_ANSWER_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_parser.h"
#include "gateway/openai/call_answer.h"

namespace quire {

// An answer of one choice that has thoughts, texts and calls of tools in the order in which the model has written them.
// The interfaces that have such answers give them their form.
class OrderedAnswer : public CallAnswer {
 public:
  void SetSyntax(AnswerSyntax syntax) override;
  void SetBeginsInReasoning(bool begins_in_reasoning) override;

 protected:
  // Ids of calls begin with `call_prefix`.
  OrderedAnswer(AnswerHead head, std::string call_prefix);

  // Gives what the text of a response adds to the functions below, in its order.
  void AddText(const v1::GenerateResponse& response, std::string* out);
  // These append events to `out` if the call is a stream. No text is empty.
  virtual void AddThoughts(absl::string_view text, std::string* out) = 0;
  virtual void AddContent(absl::string_view text, std::string* out) = 0;
  virtual void BeginCall(const ToolCallDelta& call, std::string* out) = 0;
  // Adds to the arguments of the last call.
  virtual void AddArguments(absl::string_view text, std::string* out) = 0;

  const AnswerHead& head() const { return head_; }
  // Returns whether all text is content.
  bool is_plain() const { return !parser_.has_value(); }
  // Returns whether there are calls, all of which are complete.
  bool has_whole_calls() const { return parser_.has_value() && parser_->has_whole_calls(); }

 private:
  const AnswerHead head_;
  const std::string call_prefix_;
  AnswerSyntax syntax_;
  std::optional<AnswerParser> parser_;  // Without it, all text is content.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_ORDERED_ANSWER_H_
