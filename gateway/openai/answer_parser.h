// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_ANSWER_PARSER_H_
#define QUIRE_GATEWAY_OPENAI_ANSWER_PARSER_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/call_syntax.h"
#include "gateway/openai/harmony_parser.h"
#include "gateway/openai/reasoning_splitter.h"
#include "gateway/openai/tool_call_parser.h"

namespace quire {

// This says what must be looked for in the text of the answer to a chat.
struct AnswerSyntax {
  bool has_reasoning = false;        // Thoughts are in the text, as `reasoning` says.
  bool begins_in_reasoning = false;  // The prompt has ended with the tag of thoughts.
  const ReasoningSyntax* reasoning = &UsualReasoning();
  ToolCallOptions tool_calls = {};

  // Returns whether all text is content.
  bool is_plain() const { return !has_reasoning && tool_calls.format == ToolCallFormat::kNone; }
  // Returns whether the text is messages of harmony.
  bool has_channels() const;
  // Returns whether tags may be special tokens, so that the text must show these.
  bool has_special_tags() const;
};

// Takes thoughts and calls of tools out of the text of one choice as it comes.
class AnswerParser {
 public:
  // `make_id` returns the id of the call with an index. `syntax` must outlive the parser.
  AnswerParser(const AnswerSyntax* syntax, std::function<std::string(size_t index)> make_id);

  // Returns what a piece of the text adds. Some text is kept until it is clear what it means; with `is_last`, nothing
  // is kept.
  AnswerText Add(absl::string_view text, bool is_last);

  // Returns whether there are calls, all of which are complete.
  bool has_whole_calls() const;

 private:
  std::optional<ReasoningSplitter> reasoning_;
  std::optional<ToolCallParser> calls_;
  std::optional<HarmonyParser> channels_;  // Instead of reasoning_, and of calls_ if calls are channels as well.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_ANSWER_PARSER_H_
