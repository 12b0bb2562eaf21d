// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TOOL_CALL_PARSER_H_
#define QUIRE_GATEWAY_OPENAI_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/call_finder.h"
#include "gateway/openai/call_syntax.h"

namespace quire {

// Finds the calls of tools in a model's text as it comes. A call has the name of a tool of the client. What is no call
// after all becomes content, so no text is lost. White space around calls is left out.
class ToolCallParser {
 public:
  // `make_id` returns the id of the call with an index. `options` must outlive the parser. REQUIRES: the format has
  // calls between tags (not CallShape::kChannels).
  ToolCallParser(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);

  // Appends what `text` adds to the content and the calls of `out`. Text that could be the beginning of a call is kept
  // until the next call; with `is_last`, nothing is kept. With is_forced, nothing becomes content.
  void Add(absl::string_view text, bool is_last, AnswerText* out);

  size_t num_calls() const { return finder_->num_calls(); }
  // Returns false when a call has broken arguments, or when the text has ended inside a call or behind its tag.
  bool calls_are_whole() const { return finder_->calls_are_whole(); }

 private:
  const ToolCallOptions* const options_;
  std::unique_ptr<CallFinder> finder_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TOOL_CALL_PARSER_H_
