// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_ANSWER_TEXT_H_
#define QUIRE_GATEWAY_OPENAI_ANSWER_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

namespace quire {

// A new part of a call of a tool. The parts of a call come one after the other.
struct ToolCallDelta {
  size_t index = 0;            // The calls of the choice are counted from 0.
  std::string id = {};         // Only in the first part.
  std::string name = {};       // Only in the first part.
  std::string arguments = {};  // The part adds this to the JSON text of the arguments.
  size_t content_begin = 0;    // Number of bytes of the content before the part.
};

// The parts of a piece of a model's text, or of a whole answer.
struct AnswerText {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ToolCallDelta> calls = {};

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Appends "delta" of an event as JSON: {"reasoning_content", "reasoning", "content", "tool_calls"}, without members
// that are empty. The first two are the same text.
void AppendDelta(const AnswerText& text, std::string* out);

// Leaves the content out.
void DropContent(AnswerText* text);

// Joins what follows to a text.
void Append(const AnswerText& more, AnswerText* text);

// Appends the message of an answer that is no stream as JSON.
void AppendMessage(const AnswerText& text, std::string* out);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_ANSWER_TEXT_H_
