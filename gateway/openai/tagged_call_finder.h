// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TAGGED_CALL_FINDER_H_
#define QUIRE_GATEWAY_OPENAI_TAGGED_CALL_FINDER_H_

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/bare_object.h"
#include "gateway/openai/call_finder.h"
#include "gateway/openai/call_object.h"

namespace quire {

// Finds calls with tags around the name, and around each argument or all arguments as an object. Arguments are
// given out as they come, except values that need not be strings: these come when they are complete. The tag of a group
// may be missing before a call, and tags behind an argument, a call or a group.
class TaggedCallFinder : public CallFinder {
 public:
  TaggedCallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);

 private:
  enum State {
    kText,       // Text comes until the tag that begins a group or a call.
    kGroup,      // A call or the end of the group comes.
    kName,       // The name comes.
    kObject,     // The arguments come as an object.
    kObjectEnd,  // What follows the object comes.
    kArguments,  // An argument or the end of the call comes.
    kKey,        // The name of the argument comes.
    kKeyEnd,     // What is between the name and the value comes.
    kValue,      // The value comes.
  };
  enum class Bound { kNo, kYes, kWait };

  bool Step(bool is_last, AnswerText* out) override;
  bool IsInCall() const override;
  bool OnText(bool is_last, AnswerText* out);
  bool OnGroup(bool is_last, AnswerText* out);
  bool OnName(bool is_last, AnswerText* out);
  bool OnObject(bool is_last, AnswerText* out);
  bool OnObjectEnd(bool is_last);
  bool OnArguments(bool is_last, AnswerText* out);
  bool OnKey(bool is_last, AnswerText* out);
  bool OnKeyEnd(bool is_last, AnswerText* out);
  bool OnValue(bool is_last, AnswerText* out);

  // Returns whether pending_ could become a text that begins with one of the tags.
  bool MayBecome(std::initializer_list<absl::string_view> tags) const;
  // Returns whether the value ends at a place of pending_. Sets the number of bytes of the tag there.
  Bound ValueEndsAt(size_t at, bool is_last, size_t* tag_bytes) const;
  // Returns whether `text`, which follows the end of a value, shows that it was the end.
  Bound FollowsValue(absl::string_view text, bool is_last) const;
  Bound IsNextArgument(absl::string_view text) const;
  Bound IsEndOfCall(absl::string_view text, bool is_last) const;
  // Adds text to the value.
  void AddValue(absl::string_view text, AnswerText* out);
  // Ends the call. `is_group_over` says whether the tag behind the group has come as well.
  void EndCall(bool is_group_over);
  // The rest of the text is no part of the call that has begun.
  void BreakCall(AnswerText* out);
  // Adds to the content what was taken for a call.
  void TakeBack(AnswerText* out);

  // The tags without the white space around them.
  const absl::string_view open_, begin_, name_end_, key_begin_, key_end_, value_begin_, value_end_;
  const absl::string_view call_end_;     // Behind a call.
  const absl::string_view group_end_;    // Behind a group, if that is another tag.
  const bool has_lines_;                 // A line break before and behind a value is no part of it.
  std::vector<absl::string_view> tags_;  // With which a call begins in a text: that of a group, that of a call.

  State state_;
  bool has_called_ = false;  // The group has a call.
  bool needs_line_ = false;  // The value has begun, and a line break at its beginning is left out.
  CallObject object_;
  BareObject bare_object_;
  const ParameterTypes* types_ = nullptr;  // Those of the current call; null if they are not known.
  std::set<std::string> keys_;             // The arguments of the current call so far.
  JsonTypes value_types_ = kAnyType;
  bool is_value_empty_ = true;
  std::string value_;  // So far, if it need not be a string.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TAGGED_CALL_FINDER_H_
