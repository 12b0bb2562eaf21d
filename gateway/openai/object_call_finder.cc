// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/object_call_finder.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/python_call.h"
#include "gateway/openai/tag_search.h"

namespace quire {

ObjectCallFinder::ObjectCallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id)
    : CallFinder(options, std::move(make_id)),
      tags_({absl::StripAsciiWhitespace(syntax().open)}),
      close_(absl::StripAsciiWhitespace(syntax().close)),
      state_(options->begins_in_call  ? kTag
             : syntax().may_lack_open ? kStart
                                      : kText),
      object_(syntax().shape == CallShape::kKeyedObject) {}

bool ObjectCallFinder::IsInCall() const {
  if (has_begun() && is_left_out()) return false;
  // Between two calls of a list, only white space and a separator have come.
  return state_ == kObject || state_ == kName || state_ == kArguments ||
         (state_ == kTag && absl::StrContains(taken_, tags_[0]));
}

bool ObjectCallFinder::Step(bool is_last, AnswerText* out) {
  switch (state_) {
    case kStart:
      return OnStart(is_last);
    case kText:
      return OnText(is_last, out);
    case kTag:
      return OnTag(is_last, out);
    case kObject:
      return OnObject(is_last, out);
    case kAfterCall:
      return OnAfterCall(is_last);
    case kName:
      return OnName(is_last, out);
    case kArguments:
      return OnArguments(out);
    case kCode:
      return OnCode(is_last, out);
    case kNoMoreCalls:
      out->content += std::exchange(pending_, std::string());
      return false;
  }
  return false;
}

bool ObjectCallFinder::OnStart(bool is_last) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(pending_);
  if (begin.empty() && !is_last) return false;
  has_no_tag_ = absl::StartsWith(begin, "{");
  if (has_no_tag_) SkipSpace();
  state_ = has_no_tag_ ? kObject : kText;
  return true;
}

bool ObjectCallFinder::OnText(bool is_last, AnswerText* out) {
  if (TakeTextUntil(tags_, is_last, out) < 0) return false;
  has_no_tag_ = false;
  state_ = kTag;
  return true;
}

bool ObjectCallFinder::OnTag(bool is_last, AnswerText* out) {
  if (SkipSpace()) {
    if (is_last) TakeBack(out);
    return is_last;
  }
  const bool is_list = syntax().group == CallGroup::kList;
  if (pending_[0] == '{') {
    state_ = kObject;
  } else if (is_list && pending_[0] == '[' && !is_list_) {
    is_list_ = true;
    taken_ += '[';
    pending_.erase(0, 1);
  } else if (!syntax().name_end.empty() && !is_list_) {
    state_ = kName;
  } else if (syntax().may_lack_open && !has_no_tag_) {
    state_ = kCode;
  } else {
    TakeBack(out);
  }
  return true;
}

bool ObjectCallFinder::OnObject(bool is_last, AnswerText* out) {
  pending_.erase(0, object_.Add(pending_));
  if (!has_begun() && object_.has_arguments() && object_.name().has_value() && IsTool(*object_.name())) {
    Begin(*object_.name(), "", out);
  }
  if (has_begun()) AddArguments(object_.TakeArguments(), out);
  if (!object_.is_complete()) {
    if (is_last && !has_begun()) TakeBack(out);
    return is_last && !has_begun();
  }
  if (!has_begun()) {
    const std::optional<WholeCall> call = ParseWholeCall(object_.raw(), syntax().shape == CallShape::kKeyedObject);
    if (!call.has_value() || !IsTool(call->name)) {
      TakeBack(out);
      return true;
    }
    AddCall(*call, out);
  }
  EndObject();
  return true;
}

bool ObjectCallFinder::OnAfterCall(bool is_last) {
  if (SkipSpace() && !is_last) return false;
  taken_.clear();
  if (is_list_) {
    if (Take(",")) {
      taken_.assign(1, ',');
      state_ = kTag;
      return true;
    }
    if (Take("]")) {
      is_list_ = false;
      if (close_.empty()) state_ = kText;
      return true;
    }
  }
  // The objects of a row may come without a separator.
  if (syntax().group == CallGroup::kRow) {
    has_no_tag_ = syntax().may_lack_open;
    const absl::string_view separator = absl::StripAsciiWhitespace(syntax().separator);
    if (!separator.empty() && Take(separator)) taken_ = std::string(separator);
    if (!taken_.empty() || absl::StartsWith(pending_, "{")) {
      state_ = kTag;
      return true;
    }
  }
  if (!is_last && CouldBecome(pending_, close_)) return false;
  Take(close_);
  state_ = kText;
  return true;
}

bool ObjectCallFinder::OnName(bool is_last, AnswerText* out) {
  const size_t end = pending_.find('{');
  if (end == pending_.npos || end > kMaxNameBytes) {
    const bool is_none = is_last || pending_.size() > kMaxNameBytes;
    if (is_none) TakeBack(out);
    return is_none;
  }
  absl::string_view name = absl::StripAsciiWhitespace(absl::string_view(pending_).substr(0, end));
  absl::ConsumeSuffix(&name, syntax().name_end);
  std::string id;
  if (const size_t tag = name.find("[CALL_ID]"); tag != name.npos) {
    id = std::string(absl::StripAsciiWhitespace(name.substr(tag + 9)));
    name = name.substr(0, tag);
  }
  const std::string tool(absl::StripAsciiWhitespace(name));
  if (!IsTool(tool)) {
    TakeBack(out);
    return true;
  }
  Begin(tool, id, out);
  pending_.erase(0, end);
  state_ = kArguments;
  return true;
}

bool ObjectCallFinder::OnArguments(AnswerText* out) {
  const size_t num_bytes = object_.Add(pending_);
  AddArguments(pending_.substr(0, num_bytes), out);
  pending_.erase(0, num_bytes);
  if (!object_.is_complete()) return false;
  EndObject();
  return true;
}

bool ObjectCallFinder::OnCode(bool is_last, AnswerText* out) {
  if (!is_last) return false;
  const absl::string_view code = absl::StripAsciiWhitespace(pending_);
  const char* const names[] = {"python", "ipython", "code_interpreter"};
  const auto interpreter =
      std::find_first_of(options().tools.begin(), options().tools.end(), std::begin(names), std::end(names));
  if (const std::optional<WholeCall> call = ParsePythonCall(code); call.has_value() && IsTool(call->name)) {
    AddCall(*call, out);
  } else if (interpreter != options().tools.end()) {
    AddCall({.name = *interpreter, .arguments = Dump({{"code", std::string(code)}})}, out);
  } else {
    out->content += absl::StrCat(taken_, pending_);
  }
  pending_.clear();
  return false;
}

void ObjectCallFinder::EndObject() {
  End();
  object_.Reset();
  state_ = kAfterCall;
}

void ObjectCallFinder::TakeBack(AnswerText* out) {
  out->content += absl::StrCat(taken_, object_.raw());
  taken_.clear();
  object_.Reset();
  is_list_ = false;
  state_ = has_no_tag_ ? kNoMoreCalls : kText;
}

}  // namespace quire
