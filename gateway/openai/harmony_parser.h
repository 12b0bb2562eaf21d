// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_HARMONY_PARSER_H_
#define QUIRE_GATEWAY_OPENAI_HARMONY_PARSER_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/call_finder.h"
#include "gateway/openai/call_object.h"

namespace quire {

// Reads the messages of gpt-oss as their text comes. Each has a header, which ends with <|message|>:
//   <|channel|>analysis<|message|>thoughts<|end|>
//   <|start|>assistant<|channel|>final<|message|>content<|return|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
// A recipient makes a message a call, in any channel. A message for anybody but a tool of the client is content,
// with its header. Text without a header is content.
class HarmonyParser : private CallFinder {
 public:
  // With `has_reasoning`, the channel "analysis" is not a part of the content. Without the name of a tool, `options`
  // has no calls. It must outlive the parser.
  HarmonyParser(bool has_reasoning, const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);

  // Appends what `text` adds to all parts of `out`. Text that could be a tag or a header is kept until the next call.
  // With `is_last`, nothing is kept: a header that was cut is dropped. With is_forced, nothing becomes content.
  void Add(absl::string_view text, bool is_last, AnswerText* out);

  using CallFinder::calls_are_whole;
  using CallFinder::num_calls;

 private:
  enum State { kStart, kBody };
  enum class Part { kContent, kReasoning, kCall };

  bool Step(bool is_last, AnswerText* out) override;
  bool IsInCall() const override { return false; }
  bool OnStart(bool is_last, AnswerText* out);
  bool OnBody(bool is_last, AnswerText* out);
  // The arguments of a call are an object, whose strings may have tags in them.
  bool OnObject(bool is_last, AnswerText* out);
  // The text has ended in a header, or before it. Returns false.
  bool DropCutHeader(AnswerText* out);
  // Reads a header, up to its last tag, and begins the body.
  void ReadHeader(absl::string_view header, AnswerText* out);
  void AddBody(absl::string_view text, AnswerText* out);
  void EndBody(AnswerText* out);

  const bool has_reasoning_;
  State state_ = kStart;
  Part part_ = Part::kContent;
  bool is_body_empty_ = true;
  bool is_in_object_ = false;  // The object of a call comes.
  CallObject object_;
  bool has_reasoning_text_ = false;  // Thoughts were given out.
  bool has_content_text_ = false;    // Content was given out.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_HARMONY_PARSER_H_
