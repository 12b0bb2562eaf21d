// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TOOL_CALL_PARSER_H_
#define QUIRE_GATEWAY_OPENAI_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/call_object.h"

namespace quire {

// Says how a model writes calls of tools:
// - kHermes (Qwen and others): <tool_call>{"name": "f", "arguments": {...}}</tool_call>
// - kLlama3: {"name": "f", "parameters": {...}}; further calls follow a semicolon. <|python_tag|> may come first.
//   Behind it, f.call(key="value") and Python code are calls as well.
// - kMistral: [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...], or [TOOL_CALLS]f{...} and [TOOL_CALLS]f[ARGS]{...}
enum class ToolCallFormat { kNone, kHermes, kLlama3, kMistral };

// "hermes", "llama3", "mistral"; other names are kNone.
ToolCallFormat ToolCallFormatOf(absl::string_view name);

struct ToolCallOptions {
  ToolCallFormat format = ToolCallFormat::kNone;
  std::vector<std::string> tools = {};  // The names of the tools that the client has. Others are not called.
  bool is_single = false;               // Calls after the first one are left out.
  bool begins_in_call = false;          // The text begins behind the tag of a call.
  bool is_forced = false;               // The text is nothing but calls, also where it was cut.
};

// Finds the calls of tools in a model's text as it comes. A call has the name of a tool of the client. What is no call
// after all becomes content, so no text is lost. White space around calls is left out.
class ToolCallParser {
 public:
  // `make_id` returns the id of the call with an index. `options` must outlive the parser.
  ToolCallParser(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);

  // Appends what `text` adds to the content and the calls of `out`. Text that could be the beginning of a call is kept
  // until the next call; with `is_last`, nothing is kept. With is_forced, nothing becomes content.
  void Add(absl::string_view text, bool is_last, AnswerText* out);

  size_t num_calls() const { return num_calls_; }
  // Returns false when a call has broken arguments, or when the text has ended inside a call or behind its tag.
  bool calls_are_whole() const { return calls_are_whole_; }

 private:
  enum State {
    kStart,       // A text begins, which may begin with an object (kLlama3).
    kText,        // Text comes until the tag that begins a call.
    kTag,         // That tag has come.
    kObject,      // The object of a call comes.
    kAfterCall,   // An object has ended.
    kName,        // The name comes before the arguments (kMistral).
    kArguments,   // The arguments come behind such a name.
    kCode,        // Python code comes until the end of the text (kLlama3).
    kNoMoreCalls  // The text began with an object that is no call (kLlama3).
  };

  void Read(absl::string_view text, bool is_last, AnswerText* out);
  // Goes on with pending_. Returns false when it needs more text.
  bool Step(bool is_last, AnswerText* out);
  // Returns whether a text that ends now leaves a call unfinished.
  bool IsInCall() const;
  bool OnStart(bool is_last);
  bool OnText(bool is_last, AnswerText* out);
  bool OnTag(bool is_last, AnswerText* out);
  bool OnObject(bool is_last, AnswerText* out);
  bool OnAfterCall(bool is_last);
  bool OnName(bool is_last, AnswerText* out);
  bool OnArguments(AnswerText* out);
  bool OnCode(bool is_last, AnswerText* out);

  void Begin(const std::string& name, const std::string& id, AnswerText* out);
  void AddArguments(const std::string& text, AnswerText* out);
  void AddCall(const WholeCall& call, AnswerText* out);
  // The call ends.
  void End();
  // Adds to the content what was taken for a call.
  void TakeBack(AnswerText* out);
  bool IsTool(const std::string& name) const;
  // Moves white space from the beginning of pending_ to taken_. Returns whether nothing is left.
  bool SkipSpace();

  const ToolCallOptions* const options_;
  const std::function<std::string(size_t index)> make_id_;
  const absl::string_view tag_;  // Begins a call.
  State state_;
  std::string pending_;  // It has come and is not taken.
  std::string taken_;    // It was taken for the beginning of a call that has not begun.
  CallObject object_;
  bool is_list_ = false;      // The list of calls has begun (kMistral).
  bool has_no_tag_ = false;   // The object came without a tag.
  bool has_begun_ = false;    // The name of the current call was given out.
  bool is_left_out_ = false;  // The current call is not given out.
  std::string arguments_;     // So far, of the current call.
  size_t num_calls_ = 0;      // That were given out.
  bool calls_are_whole_ = true;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TOOL_CALL_PARSER_H_
