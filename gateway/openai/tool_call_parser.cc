// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tool_call_parser.h"

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
namespace {

constexpr absl::string_view kHermesEnd = "</tool_call>";
// A name that is longer is none.
constexpr size_t kMaxNameBytes = 512;

absl::string_view TagOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kHermes:
      return "<tool_call>";
    case ToolCallFormat::kLlama3:
      return "<|python_tag|>";
    default:
      return "[TOOL_CALLS]";
  }
}

}  // namespace

ToolCallFormat ToolCallFormatOf(absl::string_view name) {
  if (name == "hermes") return ToolCallFormat::kHermes;
  if (name == "llama3") return ToolCallFormat::kLlama3;
  if (name == "mistral") return ToolCallFormat::kMistral;
  return ToolCallFormat::kNone;
}

ToolCallParser::ToolCallParser(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id)
    : options_(options),
      make_id_(std::move(make_id)),
      tag_(TagOf(options->format)),
      state_(options->begins_in_call                      ? kTag
             : options->format == ToolCallFormat::kLlama3 ? kStart
                                                          : kText) {}

void ToolCallParser::Add(absl::string_view text, bool is_last, AnswerText* out) {
  Read(text, is_last, out);
  if (options_->is_forced) out->content.clear();
}

void ToolCallParser::Read(absl::string_view text, bool is_last, AnswerText* out) {
  absl::StrAppend(&pending_, text);
  while (Step(/*is_last=*/false, out)) {
  }
  if (!is_last) return;
  if (IsInCall()) calls_are_whole_ = false;
  while (Step(/*is_last=*/true, out)) {
  }
}

bool ToolCallParser::IsInCall() const {
  if (has_begun_ && is_left_out_) return false;
  // Between two calls of a list, only white space and a separator have come.
  return state_ == kObject || state_ == kName || state_ == kArguments ||
         (state_ == kTag && absl::StrContains(taken_, tag_));
}

bool ToolCallParser::Step(bool is_last, AnswerText* out) {
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

bool ToolCallParser::OnStart(bool is_last) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(pending_);
  if (begin.empty() && !is_last) return false;
  has_no_tag_ = absl::StartsWith(begin, "{");
  if (has_no_tag_) SkipSpace();
  state_ = has_no_tag_ ? kObject : kText;
  return true;
}

bool ToolCallParser::OnText(bool is_last, AnswerText* out) {
  const size_t tag = pending_.find(tag_.data(), 0, tag_.size());
  size_t num_bytes = tag;
  if (tag == pending_.npos) {
    num_bytes = pending_.size() - (is_last ? 0 : PossibleTagBytes(pending_, tag_));
  }
  absl::string_view content = absl::string_view(pending_).substr(0, num_bytes);
  // White space may come before a call. It is content only if something else follows, or if there are no calls.
  if (tag != pending_.npos || !is_last || num_calls_ > 0) content = absl::StripTrailingAsciiWhitespace(content);
  absl::StrAppend(&out->content, content);
  if (tag == pending_.npos) {
    is_last ? pending_.clear() : void(pending_.erase(0, content.size()));
    return false;
  }
  taken_ = pending_.substr(content.size(), tag + tag_.size() - content.size());
  pending_.erase(0, tag + tag_.size());
  has_no_tag_ = false;
  state_ = kTag;
  return true;
}

bool ToolCallParser::OnTag(bool is_last, AnswerText* out) {
  if (SkipSpace()) {
    if (is_last) TakeBack(out);
    return is_last;
  }
  const bool is_mistral = options_->format == ToolCallFormat::kMistral;
  if (pending_[0] == '{') {
    state_ = kObject;
  } else if (is_mistral && pending_[0] == '[' && !is_list_) {
    is_list_ = true;
    taken_ += '[';
    pending_.erase(0, 1);
  } else if (is_mistral && !is_list_) {
    state_ = kName;
  } else if (options_->format == ToolCallFormat::kLlama3 && !has_no_tag_) {
    state_ = kCode;
  } else {
    TakeBack(out);
  }
  return true;
}

bool ToolCallParser::OnObject(bool is_last, AnswerText* out) {
  pending_.erase(0, object_.Add(pending_));
  if (!has_begun_ && object_.has_arguments() && object_.name().has_value() && IsTool(*object_.name())) {
    Begin(*object_.name(), "", out);
  }
  if (has_begun_) AddArguments(object_.TakeArguments(), out);
  if (!object_.is_complete()) {
    if (is_last && !has_begun_) TakeBack(out);
    return is_last && !has_begun_;
  }
  if (!has_begun_) {
    const std::optional<WholeCall> call = ParseWholeCall(object_.raw());
    if (!call.has_value() || !IsTool(call->name)) {
      TakeBack(out);
      return true;
    }
    AddCall(*call, out);
  }
  End();
  return true;
}

bool ToolCallParser::OnAfterCall(bool is_last) {
  if (SkipSpace() && !is_last) return false;
  taken_.clear();
  state_ = kText;
  const auto take = [this](absl::string_view text) {
    if (!absl::StartsWith(pending_, text)) return false;
    pending_.erase(0, text.size());
    return true;
  };
  switch (options_->format) {
    case ToolCallFormat::kHermes:
      if (!is_last && pending_.size() < kHermesEnd.size() && absl::StartsWith(kHermesEnd, pending_)) {
        state_ = kAfterCall;
        return false;
      }
      take(kHermesEnd);
      break;
    case ToolCallFormat::kMistral:
      if (is_list_ && take(",")) {
        taken_ = ",";
        state_ = kTag;
      } else if (is_list_ && take("]")) {
        is_list_ = false;
      }
      break;
    default:
      // Behind a semicolon, another object follows.
      has_no_tag_ = true;
      if (take(";")) taken_ = ";";
      if (!taken_.empty() || absl::StartsWith(pending_, "{")) state_ = kTag;
      break;
  }
  return true;
}

bool ToolCallParser::OnName(bool is_last, AnswerText* out) {
  const size_t end = pending_.find('{');
  if (end == pending_.npos || end > kMaxNameBytes) {
    const bool is_none = is_last || pending_.size() > kMaxNameBytes;
    if (is_none) TakeBack(out);
    return is_none;
  }
  absl::string_view name = absl::StripAsciiWhitespace(absl::string_view(pending_).substr(0, end));
  absl::ConsumeSuffix(&name, "[ARGS]");
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

bool ToolCallParser::OnArguments(AnswerText* out) {
  const size_t num_bytes = object_.Add(pending_);
  AddArguments(pending_.substr(0, num_bytes), out);
  pending_.erase(0, num_bytes);
  if (!object_.is_complete()) return false;
  End();
  return true;
}

bool ToolCallParser::OnCode(bool is_last, AnswerText* out) {
  if (!is_last) return false;
  const absl::string_view code = absl::StripAsciiWhitespace(pending_);
  const char* const names[] = {"python", "ipython", "code_interpreter"};
  const auto interpreter =
      std::find_first_of(options_->tools.begin(), options_->tools.end(), std::begin(names), std::end(names));
  if (const std::optional<WholeCall> call = ParsePythonCall(code); call.has_value() && IsTool(call->name)) {
    AddCall(*call, out);
  } else if (interpreter != options_->tools.end()) {
    AddCall({.name = *interpreter, .arguments = Dump({{"code", std::string(code)}})}, out);
  } else {
    out->content += absl::StrCat(taken_, pending_);
  }
  pending_.clear();
  return false;
}

void ToolCallParser::Begin(const std::string& name, const std::string& id, AnswerText* out) {
  has_begun_ = true;
  is_left_out_ = options_->is_single && num_calls_ > 0;
  if (is_left_out_) return;
  out->calls.push_back({.index = num_calls_, .id = id.empty() ? make_id_(num_calls_) : id, .name = name});
  ++num_calls_;
}

void ToolCallParser::AddArguments(const std::string& text, AnswerText* out) {
  if (is_left_out_ || text.empty()) return;
  arguments_ += text;
  const size_t index = num_calls_ - 1;
  if (out->calls.empty() || out->calls.back().index != index) out->calls.push_back({.index = index});
  out->calls.back().arguments += text;
}

void ToolCallParser::AddCall(const WholeCall& call, AnswerText* out) {
  Begin(call.name, "", out);
  AddArguments(call.arguments, out);
}

void ToolCallParser::End() {
  // Only brackets and strings were followed, so what has come need not be JSON.
  if (!is_left_out_ && !Json::accept(arguments_)) calls_are_whole_ = false;
  arguments_.clear();
  object_ = CallObject();
  has_begun_ = false;
  taken_.clear();
  state_ = kAfterCall;
}

void ToolCallParser::TakeBack(AnswerText* out) {
  out->content += absl::StrCat(taken_, object_.raw());
  taken_.clear();
  object_ = CallObject();
  is_list_ = false;
  state_ = has_no_tag_ ? kNoMoreCalls : kText;
}

bool ToolCallParser::IsTool(const std::string& name) const {
  return std::find(options_->tools.begin(), options_->tools.end(), name) != options_->tools.end();
}

bool ToolCallParser::SkipSpace() {
  const size_t num_bytes = pending_.size() - absl::StripLeadingAsciiWhitespace(pending_).size();
  taken_.append(pending_, 0, num_bytes);
  pending_.erase(0, num_bytes);
  return pending_.empty();
}

}  // namespace quire
