// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CALL_FINDER_H_
#define QUIRE_GATEWAY_OPENAI_CALL_FINDER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/answer_text.h"
#include "gateway/openai/call_object.h"
#include "gateway/openai/call_syntax.h"
#include "gateway/openai/parameter_types.h"

namespace quire {

struct ToolCallOptions {
  ToolCallFormat format = ToolCallFormat::kNone;
  std::vector<std::string> tools = {};  // The names of the tools that the client has. Others are not called.
  bool is_single = false;               // Calls after the first one are left out.
  bool begins_in_call = false;          // The text begins behind the tag of a call.
  bool is_forced = false;               // The text is nothing but calls, also where it was cut.
  // The types of the parameters of each tool. Values of parameters that are not known may have any type.
  std::map<std::string, ParameterTypes> parameters = {};
};

// A name that is longer is none.
inline constexpr size_t kMaxNameBytes = 512;
// White space that is longer separates no tags.
inline constexpr size_t kMaxSpaceBytes = 64;

// Finds calls in a model's text as it comes, in one shape of them. Text that could be the beginning of a call is kept
// until the next call of Add; with `is_last`, nothing is kept. What is no call after all becomes content.
class CallFinder {
 public:
  // `options` must outlive the finder.
  CallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);
  virtual ~CallFinder() = default;

  // Appends what `text` adds to the content and the calls of `out`.
  void Add(absl::string_view text, bool is_last, AnswerText* out);

  size_t num_calls() const { return num_calls_; }
  // Returns false when a call has broken arguments, or when the text has ended inside a call or behind its tag.
  bool calls_are_whole() const { return calls_are_whole_; }

 protected:
  // Continues with pending_. Returns false when it needs more text.
  virtual bool Step(bool is_last, AnswerText* out) = 0;
  // Returns whether a text that ends now leaves a call unfinished.
  virtual bool IsInCall() const = 0;

  // Moves pending_ to the content up to the first of the tags. Moves the tag, and the white space before it, to taken_.
  // Returns the index of the tag, or -1 if none has come.
  int TakeTextUntil(const std::vector<absl::string_view>& tags, bool is_last, AnswerText* out);
  // Begins a call. If `id` is empty, it gets a new one.
  void Begin(const std::string& name, const std::string& id, AnswerText* out);
  void AddArguments(absl::string_view text, AnswerText* out);
  void AddCall(const WholeCall& call, AnswerText* out);
  // The call ends.
  void End();
  // Marks that a call is broken.
  void Break() { calls_are_whole_ = calls_are_whole_ && is_left_out_; }

  bool IsTool(const std::string& name) const;
  // Moves white space from the beginning of pending_ to taken_. Returns whether nothing is left.
  bool SkipSpace();
  // Removes `text` from the beginning of pending_. Returns false if pending_ has another beginning.
  bool Take(absl::string_view text);

  const ToolCallOptions& options() const { return *options_; }
  const CallSyntax& syntax() const { return syntax_; }
  bool has_begun() const { return has_begun_; }
  bool is_left_out() const { return is_left_out_; }

  std::string pending_;  // It has come and is not taken.
  std::string taken_;    // It was taken for the beginning of a call that has not begun.

 private:
  const ToolCallOptions* const options_;
  const CallSyntax& syntax_;
  const std::function<std::string(size_t index)> make_id_;
  bool has_begun_ = false;    // The name of the current call was given out.
  bool is_left_out_ = false;  // The current call is not given out.
  std::string arguments_;     // So far, of the current call.
  size_t num_calls_ = 0;      // That were given out.
  bool calls_are_whole_ = true;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CALL_FINDER_H_
