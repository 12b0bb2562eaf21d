// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gateway/openai/tag_search.h"

namespace quire {
namespace {

constexpr absl::string_view kStartTag = "<|start|>";
constexpr absl::string_view kChannelTag = "<|channel|>";
constexpr absl::string_view kMessageTag = "<|message|>";
constexpr absl::string_view kRecipient = "to=";
// A header begins with one of these.
constexpr absl::string_view kHeaderBegins[] = {kStartTag, kChannelTag, kMessageTag, "<|constrain|>", kRecipient};
// A message ends with one of these. The last two begin another one.
constexpr absl::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStartTag, kChannelTag};
constexpr size_t kMaxHeaderBytes = 1024;

// Returns the word behind `mark` in a header; empty if there is none.
absl::string_view WordBehind(absl::string_view mark, absl::string_view header) {
  const size_t at = header.find(mark);
  if (at == header.npos) return "";
  const absl::string_view rest = absl::StripLeadingAsciiWhitespace(header.substr(at + mark.size()));
  return rest.substr(0, rest.find_first_of(" \n\t<"));
}

}  // namespace

HarmonyParser::HarmonyParser(bool has_reasoning, const ToolCallOptions* options,
                             std::function<std::string(size_t index)> make_id)
    : CallFinder(options, std::move(make_id)), has_reasoning_(has_reasoning) {}

void HarmonyParser::Add(absl::string_view text, bool is_last, AnswerText* out) {
  CallFinder::Add(text, is_last, out);
  if (options().is_forced) DropContent(out);
}

bool HarmonyParser::Step(bool is_last, AnswerText* out) {
  return state_ == kStart ? OnStart(is_last, out) : OnBody(is_last, out);
}

bool HarmonyParser::OnStart(bool is_last, AnswerText* out) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(pending_);
  const auto begins = [text](absl::string_view tag) { return absl::StartsWith(text, tag); };
  const bool is_near = pending_.size() - text.size() <= kMaxSpaceBytes;
  if (!is_near || std::none_of(std::begin(kHeaderBegins), std::end(kHeaderBegins), begins)) {
    const auto may_begin = [text](absl::string_view tag) { return CouldBecome(text, tag); };
    if (is_near && std::any_of(std::begin(kHeaderBegins), std::end(kHeaderBegins), may_begin)) {
      return is_last && DropCutHeader(out);
    }
    part_ = Part::kContent;
    is_body_empty_ = true;
    state_ = kBody;
    return true;
  }
  const size_t end = text.find(kMessageTag);
  size_t broken = text.npos;
  for (const absl::string_view tag : {kEnds[0], kEnds[1], kEnds[2], kStartTag}) {
    broken = std::min(broken, text.find(tag, /*pos=*/1));
  }
  if (broken < end && broken <= kMaxHeaderBytes) {
    // The message has no body, and what it has is text.
    const std::string header = pending_.substr(0, pending_.size() - text.size() + broken);
    part_ = Part::kContent;
    is_body_empty_ = true;
    AddBody(header, out);
    pending_.erase(0, header.size());
    state_ = kBody;
    return true;
  }
  if (end == text.npos && text.size() <= kMaxHeaderBytes) {
    return is_last && DropCutHeader(out);
  }
  if (end == text.npos || end > kMaxHeaderBytes) {
    part_ = Part::kContent;
    is_body_empty_ = false;
    state_ = kBody;
    // The tag at its beginning does not end the message.
    const size_t num_bytes = pending_.find('<') + 1;
    out->content.append(pending_, 0, num_bytes);
    pending_.erase(0, num_bytes);
    return true;
  }
  const std::string header(text.substr(0, end + kMessageTag.size()));
  pending_.erase(0, pending_.size() - text.size() + header.size());
  ReadHeader(header, out);
  return true;
}

bool HarmonyParser::DropCutHeader(AnswerText* out) {
  const bool is_tag = absl::StartsWith(absl::StripLeadingAsciiWhitespace(pending_), "<|");
  if (!is_tag) out->content += pending_;
  pending_.clear();
  return false;
}

void HarmonyParser::ReadHeader(absl::string_view header, AnswerText* out) {
  state_ = kBody;
  is_body_empty_ = true;
  const absl::string_view recipient = WordBehind(kRecipient, header);
  absl::string_view name = recipient;
  if (!recipient.empty() && absl::ConsumePrefix(&name, syntax().name_prefix) && IsTool(std::string(name))) {
    part_ = Part::kCall;
    is_in_object_ = true;
    object_.Reset();
    return Begin(std::string(name), "", out);
  }
  part_ = Part::kContent;
  if (!recipient.empty()) {
    AddBody(header, out);
  } else if (has_reasoning_ && WordBehind(kChannelTag, header) == "analysis") {
    part_ = Part::kReasoning;
  }
}

bool HarmonyParser::OnObject(bool is_last, AnswerText* out) {
  if (is_body_empty_) pending_ = std::string(absl::StripLeadingAsciiWhitespace(pending_));
  if (pending_.empty()) {
    if (is_last) EndBody(out);
    return false;
  }
  if (is_body_empty_ && pending_[0] != '{') {
    is_in_object_ = false;
    return true;
  }
  const size_t num_bytes = object_.Add(pending_);
  AddBody(absl::string_view(pending_).substr(0, num_bytes), out);
  pending_.erase(0, num_bytes);
  is_in_object_ = !object_.is_complete();
  return true;
}

bool HarmonyParser::OnBody(bool is_last, AnswerText* out) {
  if (is_in_object_) return OnObject(is_last, out);
  size_t end = pending_.size();
  absl::string_view tag;
  size_t num_kept = 0;
  for (const absl::string_view candidate : kEnds) {
    const size_t at = pending_.find(candidate.data(), 0, candidate.size());
    if (at < end) {
      end = at;
      tag = candidate;
    }
    if (at == pending_.npos && !is_last) num_kept = std::max(num_kept, PossibleTagBytes(pending_, candidate));
  }
  if (tag.empty()) end -= num_kept;
  AddBody(absl::string_view(pending_).substr(0, end), out);
  pending_.erase(0, end);
  if (tag.empty()) {
    if (is_last) EndBody(out);
    return false;
  }
  EndBody(out);
  if (tag != kStartTag && tag != kChannelTag) pending_.erase(0, tag.size());
  state_ = kStart;
  return true;
}

void HarmonyParser::AddBody(absl::string_view text, AnswerText* out) {
  if (text.empty()) return;
  const bool is_first = std::exchange(is_body_empty_, false);
  switch (part_) {
    case Part::kCall:
      return AddArguments(text, out);
    case Part::kReasoning:
      // Messages of the same kind are on different lines.
      if (is_first && std::exchange(has_reasoning_text_, true)) out->reasoning += '\n';
      return absl::StrAppend(&out->reasoning, text);
    case Part::kContent:
      if (is_first && std::exchange(has_content_text_, true)) out->content += '\n';
      return absl::StrAppend(&out->content, text);
  }
}

void HarmonyParser::EndBody(AnswerText* out) {
  if (part_ != Part::kCall) return;
  if (is_body_empty_) AddArguments("{}", out);
  End();
  is_in_object_ = false;
  part_ = Part::kContent;
}

}  // namespace quire
