// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tagged_call_finder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/tag_search.h"

namespace quire {
namespace {

absl::string_view Trimmed(absl::string_view text) {
  return absl::StripAsciiWhitespace(text);
}

}  // namespace

TaggedCallFinder::TaggedCallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id)
    : CallFinder(options, std::move(make_id)),
      open_(Trimmed(syntax().open)),
      begin_(Trimmed(syntax().begin)),
      name_end_(Trimmed(syntax().name_end)),
      key_begin_(Trimmed(syntax().key_begin)),
      key_end_(Trimmed(syntax().key_end)),
      value_begin_(Trimmed(syntax().value_begin)),
      value_end_(Trimmed(syntax().value_end)),
      call_end_(Trimmed(syntax().end.empty() ? syntax().close : syntax().end)),
      group_end_(syntax().end.empty() ? "" : Trimmed(syntax().close)),
      has_lines_(absl::StartsWith(syntax().value_end, "\n")),
      tags_({open_}),
      state_(options->begins_in_call ? kGroup : kText),
      bare_object_(syntax().quote) {
  // "call:" alone is a word of any text.
  if (absl::StartsWith(begin_, "<")) tags_.push_back(begin_);
}

bool TaggedCallFinder::Step(bool is_last, AnswerText* out) {
  switch (state_) {
    case kText:
      return OnText(is_last, out);
    case kGroup:
      return OnGroup(is_last, out);
    case kName:
      return OnName(is_last, out);
    case kObject:
      return OnObject(is_last, out);
    case kObjectEnd:
      return OnObjectEnd(is_last);
    case kArguments:
      return OnArguments(is_last, out);
    case kKey:
      return OnKey(is_last, out);
    case kKeyEnd:
      return OnKeyEnd(is_last, out);
    case kValue:
      return OnValue(is_last, out);
  }
  return false;
}

bool TaggedCallFinder::IsInCall() const {
  if (has_begun() && is_left_out()) return false;
  return state_ != kText && state_ != kObjectEnd && (state_ != kGroup || !has_called_);
}

bool TaggedCallFinder::MayBecome(std::initializer_list<absl::string_view> tags) const {
  return std::any_of(tags.begin(), tags.end(), [this](absl::string_view tag) { return CouldBecome(pending_, tag); });
}

bool TaggedCallFinder::OnText(bool is_last, AnswerText* out) {
  const int tag = TakeTextUntil(tags_, is_last, out);
  if (tag < 0) return false;
  has_called_ = false;
  state_ = tag == 0 ? kGroup : kName;
  return true;
}

bool TaggedCallFinder::OnGroup(bool is_last, AnswerText* out) {
  SkipSpace();
  if (!is_last && (pending_.empty() || MayBecome({begin_, group_end_}))) return false;
  if (has_called_ && !group_end_.empty() && Take(group_end_)) {
    taken_.clear();
    state_ = kText;
    return true;
  }
  if (!pending_.empty() && absl::StartsWith(pending_, begin_)) {
    absl::StrAppend(&taken_, begin_);
    Take(begin_);
    state_ = kName;
    return true;
  }
  if (has_called_) taken_.clear();  // It is white space.
  TakeBack(out);
  return true;
}

bool TaggedCallFinder::OnName(bool is_last, AnswerText* out) {
  // A name without an end of its own ends with its line, at a tag, or where the object begins.
  const bool is_bare = syntax().shape == CallShape::kBareObject;
  const size_t end = is_bare             ? pending_.find('{')
                     : name_end_.empty() ? pending_.find_first_of("\n<")
                                         : pending_.find(name_end_.data(), 0, name_end_.size());
  if (end == pending_.npos && !is_last && pending_.size() <= kMaxNameBytes) return false;
  if (end == pending_.npos || end > kMaxNameBytes) {
    TakeBack(out);
    return true;
  }
  absl::string_view name = Trimmed(absl::string_view(pending_).substr(0, end));
  std::string id;
  if (syntax().has_number) {
    const size_t colon = name.rfind(':');
    if (colon != name.npos) {
      id = std::string(name);
      name = name.substr(0, colon);
    }
  }
  absl::ConsumePrefix(&name, syntax().name_prefix);
  const std::string tool(Trimmed(name));
  if (!IsTool(tool)) {
    TakeBack(out);
    return true;
  }
  const auto types = options().parameters.find(tool);
  types_ = types == options().parameters.end() ? nullptr : &types->second;
  bare_object_.Reset(types_);
  if (syntax().shape == CallShape::kParameters) {
    Begin(tool, id, out);
    pending_.erase(0, end + name_end_.size());
    keys_.clear();
    AddArguments("{", out);
    state_ = kArguments;
    return true;
  }
  const absl::string_view rest = absl::string_view(pending_).substr(end + name_end_.size());
  const absl::string_view arguments = absl::StripLeadingAsciiWhitespace(rest);
  const bool is_near = rest.size() - arguments.size() <= kMaxSpaceBytes;
  if (!is_last && is_near && (arguments.empty() || CouldBecome(arguments, call_end_))) return false;
  // A call may have no arguments.
  const bool has_object = absl::StartsWith(arguments, "{");
  if (!is_near || (!has_object && !absl::StartsWith(arguments, call_end_))) {
    TakeBack(out);
    return true;
  }
  Begin(tool, id, out);
  pending_ = std::string(arguments);
  if (!has_object) {
    AddArguments("{}", out);
    EndCall(/*is_group_over=*/false);
  }
  state_ = has_object ? kObject : kObjectEnd;
  return true;
}

bool TaggedCallFinder::OnObject(bool is_last, AnswerText* out) {
  const bool is_bare = syntax().shape == CallShape::kBareObject;
  std::string json;
  const size_t num_bytes = is_bare ? bare_object_.Add(pending_, is_last, &json) : object_.Add(pending_);
  AddArguments(is_bare ? json : absl::string_view(pending_).substr(0, num_bytes), out);
  pending_.erase(0, num_bytes);
  if (!(is_bare ? bare_object_.is_complete() : object_.is_complete())) return false;
  object_.Reset();
  EndCall(/*is_group_over=*/false);
  state_ = kObjectEnd;
  return true;
}

bool TaggedCallFinder::OnObjectEnd(bool is_last) {
  SkipSpace();
  taken_.clear();
  if (!is_last && (pending_.empty() || MayBecome({call_end_}))) return false;
  if (!Take(call_end_)) {
    // The last tag may come without what is before it.
    const size_t tag = call_end_.rfind('<');
    const absl::string_view last_tag = tag == call_end_.npos ? call_end_ : call_end_.substr(tag);
    if (!is_last && MayBecome({last_tag})) return false;
    Take(last_tag);
  }
  state_ = kGroup;
  return true;
}

bool TaggedCallFinder::OnArguments(bool is_last, AnswerText* out) {
  SkipSpace();
  taken_.clear();
  if (MayBecome({key_begin_, call_end_, group_end_})) {
    if (is_last) pending_.clear();
    return false;
  }
  if (pending_.empty()) return false;
  if (Take(key_begin_)) {
    state_ = kKey;
  } else if (Take(call_end_)) {
    AddArguments("}", out);
    EndCall(group_end_.empty());
  } else if (!group_end_.empty() && Take(group_end_)) {
    AddArguments("}", out);
    EndCall(/*is_group_over=*/true);
  } else {
    BreakCall(out);
  }
  return true;
}

bool TaggedCallFinder::OnKey(bool is_last, AnswerText* out) {
  const size_t end = pending_.find(key_end_.data(), 0, key_end_.size());
  const bool is_too_long = end == pending_.npos ? pending_.size() > kMaxNameBytes : end > kMaxNameBytes;
  const size_t tag = pending_.find('<');  // Names have none.
  const bool is_tag = tag < end && !CouldBecome(absl::string_view(pending_).substr(tag), key_end_);
  if (is_too_long || is_tag) {
    BreakCall(out);
    return true;
  }
  std::string text = keys_.empty() ? "\"" : ", \"";
  if (end == pending_.npos) {
    if (is_last && !pending_.empty()) {
      pending_.resize(pending_.size() - PossibleTagBytes(pending_, key_end_));
      AppendPartOfString(std::exchange(pending_, std::string()), &text);
      AddArguments(text, out);
    }
    return false;
  }
  absl::string_view key = absl::string_view(pending_).substr(0, end);
  value_types_ = kAnyType;
  bool is_string = false;
  bool is_no_string = false;
  if (!syntax().string_attribute.empty()) {
    const size_t attribute = key.find(syntax().string_attribute);
    const absl::string_view value =
        attribute == key.npos ? "" : key.substr(attribute + syntax().string_attribute.size());
    is_string = value == "true";
    is_no_string = value == "false";
    key = key.substr(0, attribute);
  }
  const std::string name(Trimmed(key));
  if (types_ != nullptr) {
    const auto types = types_->find(name);
    if (types != types_->end()) value_types_ = types->second;
  }
  if (is_string) value_types_ = kStringType;
  if (is_no_string) value_types_ = kAnyType & static_cast<JsonTypes>(~kStringType);
  AppendPartOfString(name, &text);
  AddArguments(absl::StrCat(text, "\": "), out);
  keys_.insert(name);
  pending_.erase(0, end + key_end_.size());
  state_ = kKeyEnd;
  return true;
}

bool TaggedCallFinder::OnKeyEnd(bool is_last, AnswerText* out) {
  if (!value_begin_.empty()) {
    SkipSpace();
    taken_.clear();
    if (pending_.empty() || MayBecome({value_begin_})) {
      if (is_last) pending_.clear();
      return false;
    }
    if (!Take(value_begin_)) {
      AddArguments("null", out);
      BreakCall(out);
      return true;
    }
  }
  needs_line_ = has_lines_;
  is_value_empty_ = true;
  value_.clear();
  if (value_types_ == kStringType) AddArguments("\"", out);
  state_ = kValue;
  return true;
}

TaggedCallFinder::Bound TaggedCallFinder::FollowsValue(absl::string_view text, bool is_last) const {
  const absl::string_view next = absl::StripLeadingAsciiWhitespace(text);
  if (text.size() - next.size() > kMaxSpaceBytes) return Bound::kNo;
  if (next.empty()) return is_last ? Bound::kYes : Bound::kWait;
  Bound bound = Bound::kNo;
  for (const absl::string_view tag : {key_begin_, call_end_, group_end_}) {
    if (tag.empty()) continue;
    if (absl::StartsWith(next, tag)) return Bound::kYes;
    if (CouldBecome(next, tag)) bound = is_last ? Bound::kYes : Bound::kWait;
  }
  return bound;
}

// The tag behind a value is missing if one of the next argument follows, which is known and has not come.
TaggedCallFinder::Bound TaggedCallFinder::IsNextArgument(absl::string_view text) const {
  if (types_ == nullptr) return Bound::kNo;
  if (CouldBecome(text, key_begin_)) return Bound::kWait;
  if (!absl::ConsumePrefix(&text, key_begin_)) return Bound::kNo;
  Bound bound = Bound::kNo;
  for (const auto& [name, types] : *types_) {
    if (keys_.contains(name)) continue;
    if (CouldBecome(text, name)) bound = Bound::kWait;
    if (!absl::StartsWith(text, name)) continue;
    const absl::string_view rest = text.substr(name.size());
    if (CouldBecome(rest, key_end_)) bound = Bound::kWait;
    if (absl::StartsWith(rest, key_end_)) return Bound::kYes;
  }
  return bound;
}

// The tag behind a value is missing as well if the tags of the call and of the group follow, and behind them the end of
// the text or another group.
TaggedCallFinder::Bound TaggedCallFinder::IsEndOfCall(absl::string_view text, bool is_last) const {
  for (const absl::string_view tag : {call_end_, group_end_, open_}) {
    if (tag.empty()) continue;
    const absl::string_view next = absl::StripLeadingAsciiWhitespace(text);
    if (text.size() - next.size() > kMaxSpaceBytes) return Bound::kNo;
    if (next.empty() && tag == open_) return is_last ? Bound::kYes : Bound::kWait;
    if (next.empty() || CouldBecome(next, tag)) return Bound::kWait;
    if (!absl::StartsWith(next, tag)) return Bound::kNo;
    text = next.substr(tag.size());
  }
  return Bound::kYes;
}

TaggedCallFinder::Bound TaggedCallFinder::ValueEndsAt(size_t at, bool is_last, size_t* tag_bytes) const {
  const absl::string_view rest = absl::string_view(pending_).substr(at);
  *tag_bytes = 0;
  Bound bound = Bound::kNo;
  if (absl::StartsWith(rest, value_end_)) {
    *tag_bytes = value_end_.size();
    return FollowsValue(rest.substr(value_end_.size()), is_last);
  }
  if (CouldBecome(rest, value_end_)) bound = Bound::kWait;
  // A grammar writes all tags, and its texts may contain any other.
  const bool begins_line = at == 0 ? is_value_empty_ : pending_[at - 1] == '\n';
  if (!options().is_forced && begins_line) {
    for (const Bound other : {IsNextArgument(rest), IsEndOfCall(rest, is_last)}) {
      if (other == Bound::kYes) return other;
      if (other == Bound::kWait) bound = other;
    }
  }
  return is_last && bound == Bound::kWait ? Bound::kNo : bound;
}

bool TaggedCallFinder::OnValue(bool is_last, AnswerText* out) {
  if (needs_line_) {
    if (pending_.empty()) return false;
    if (pending_[0] == '\n') pending_.erase(0, 1);
    needs_line_ = false;
  }
  for (size_t at = pending_.find('<'); at != pending_.npos; at = pending_.find('<', at + 1)) {
    size_t tag_bytes = 0;
    const Bound bound = ValueEndsAt(at, is_last, &tag_bytes);
    if (bound == Bound::kNo) continue;
    const size_t num_bytes = at > 0 && pending_[at - 1] == '\n' && (has_lines_ || tag_bytes == 0) ? at - 1 : at;
    AddValue(absl::string_view(pending_).substr(0, num_bytes), out);
    if (bound == Bound::kWait) {
      pending_.erase(0, num_bytes);
      return false;
    }
    AddArguments(value_types_ == kStringType ? "\"" : TypedValue(value_, value_types_), out);
    pending_.erase(0, at + tag_bytes);
    state_ = kArguments;
    return true;
  }
  // A line break at the end may come before a tag.
  const size_t num_bytes = pending_.size() - (!is_last && absl::EndsWith(pending_, "\n") ? 1 : 0);
  AddValue(absl::string_view(pending_).substr(0, num_bytes), out);
  pending_.erase(0, num_bytes);
  if (is_last && value_types_ != kStringType && !value_.empty()) {
    std::string cut;
    if ((value_types_ & kStringType) != 0) {
      cut = "\"";
      AppendPartOfString(value_, &cut);
    } else {
      cut = value_;
    }
    value_.clear();
    AddArguments(cut, out);
  }
  return false;
}

void TaggedCallFinder::AddValue(absl::string_view text, AnswerText* out) {
  if (text.empty()) return;
  is_value_empty_ = false;
  if (value_types_ != kStringType) return absl::StrAppend(&value_, text);
  std::string part;
  AppendPartOfString(text, &part);
  AddArguments(part, out);
}

void TaggedCallFinder::EndCall(bool is_group_over) {
  End();
  has_called_ = true;
  state_ = is_group_over ? kText : kGroup;
}

void TaggedCallFinder::BreakCall(AnswerText* out) {
  Break();
  AddArguments("}", out);
  End();
  state_ = kText;
}

void TaggedCallFinder::TakeBack(AnswerText* out) {
  out->content += std::exchange(taken_, std::string());
  state_ = kText;
}

}  // namespace quire
