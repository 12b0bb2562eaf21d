// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/reasoning_splitter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gateway/openai/tag_search.h"

namespace quire {
namespace {

void DropLineBreaks(std::string* text) {
  text->erase(0, std::min(text->find_first_not_of("\r\n"), text->size()));
}

}  // namespace

const ReasoningSyntax& UsualReasoning() {
  return ReasoningSyntaxes()[0];
}

Thoughts ThoughtsAfter(absl::string_view prompt, std::optional<absl::string_view> continued,
                       const ReasoningSyntax& syntax) {
  if (syntax.is_channel()) return continued.has_value() ? Thoughts::kNone : Thoughts::kOptional;
  prompt = absl::StripTrailingAsciiWhitespace(prompt);
  if (absl::EndsWith(prompt, syntax.begin)) return Thoughts::kBegun;
  if (absl::EndsWith(prompt, syntax.end)) return Thoughts::kNone;
  if (!continued.has_value()) return Thoughts::kOptional;
  const size_t begin = continued->rfind(syntax.begin);
  const size_t end = continued->rfind(syntax.end);
  const bool is_open = begin != continued->npos && (end == continued->npos || end < begin);
  return is_open ? Thoughts::kBegun : Thoughts::kNone;
}

void ReasoningSplitter::Add(absl::string_view text, bool is_last, AnswerText* out) {
  if (state_ == kContent) {
    absl::StrAppend(&out->content, text);
    return;
  }
  absl::StrAppend(&pending_, text);
  while (Step(is_last, out)) {
  }
}

bool ReasoningSplitter::Step(bool is_last, AnswerText* out) {
  switch (state_) {
    case kStart: {
      const absl::string_view begin = absl::StripLeadingAsciiWhitespace(pending_);
      if (!is_last && CouldBecome(begin, begin_)) return false;
      if (absl::StartsWith(begin, begin_)) {
        pending_ = std::string(begin.substr(begin_.size()));
        state_ = kOpened;
      } else {
        state_ = kContent;
      }
      return true;
    }
    case kOpened: {
      DropLineBreaks(&pending_);
      if (!is_last && CouldBecome(pending_, begin_)) return false;
      if (absl::StartsWith(pending_, begin_)) {
        pending_.erase(0, begin_.size());
        DropLineBreaks(&pending_);
        if (pending_.empty() && !is_last) return false;
      }
      state_ = kReasoning;
      return true;
    }
    case kReasoning: {
      const size_t end = pending_.find(end_.data(), 0, end_.size());
      size_t num_bytes = end != pending_.npos ? end : pending_.size();
      if (end == pending_.npos && !is_last) num_bytes -= PossibleTagBytes(pending_, end_);
      // A line break before the end of the thoughts is no part of them.
      size_t num_taken = num_bytes;
      if (num_taken > 0 && pending_[num_taken - 1] == '\n' && (end != pending_.npos || !is_last)) --num_taken;
      out->reasoning.append(pending_, 0, num_taken);
      if (end == pending_.npos) {
        pending_.erase(0, num_taken);
        return false;
      }
      pending_.erase(0, end + end_.size());
      state_ = kClosed;
      return true;
    }
    case kClosed:
      DropLineBreaks(&pending_);
      if (pending_.empty()) return false;
      state_ = kContent;
      return true;
    case kContent:
      out->content += std::exchange(pending_, std::string());
      return false;
  }
  return false;
}

}  // namespace quire
