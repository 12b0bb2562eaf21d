// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_OBJECT_CALL_FINDER_H_
#define QUIRE_GATEWAY_OPENAI_OBJECT_CALL_FINDER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/call_finder.h"
#include "gateway/openai/call_object.h"

namespace quire {

// Finds calls that are JSON objects with a name, and the calls of Mistral, f[ARGS]{"a": 1}. Where a text may begin with
// a call without a tag, Python code behind the tag is a call as well.
class ObjectCallFinder : public CallFinder {
 public:
  ObjectCallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);

 private:
  enum State {
    kStart,       // A text begins, which may begin with an object.
    kText,        // Text comes until the tag that begins a call.
    kTag,         // That tag has come.
    kObject,      // The object of a call comes.
    kAfterCall,   // An object has ended.
    kName,        // The name comes before the arguments.
    kArguments,   // The arguments come behind such a name.
    kCode,        // Python code comes until the end of the text.
    kNoMoreCalls  // The text began with an object that is no call.
  };

  bool Step(bool is_last, AnswerText* out) override;
  bool IsInCall() const override;
  bool OnStart(bool is_last);
  bool OnText(bool is_last, AnswerText* out);
  bool OnTag(bool is_last, AnswerText* out);
  bool OnObject(bool is_last, AnswerText* out);
  bool OnAfterCall(bool is_last);
  bool OnName(bool is_last, AnswerText* out);
  bool OnArguments(AnswerText* out);
  bool OnCode(bool is_last, AnswerText* out);

  void EndObject();
  // Adds to the content what was taken for a call.
  void TakeBack(AnswerText* out);

  const std::vector<absl::string_view> tags_;  // The one that begins calls.
  const absl::string_view close_;              // Comes behind calls, if it is not empty.
  State state_;
  CallObject object_;
  bool is_list_ = false;     // The list of calls has begun.
  bool has_no_tag_ = false;  // The object came without a tag.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_OBJECT_CALL_FINDER_H_
