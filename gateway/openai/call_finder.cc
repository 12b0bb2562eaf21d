// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/call_finder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/tag_search.h"

namespace quire {

CallFinder::CallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id)
    : options_(options), syntax_(SyntaxOf(options->format)), make_id_(std::move(make_id)) {}

void CallFinder::Add(absl::string_view text, bool is_last, AnswerText* out) {
  absl::StrAppend(&pending_, text);
  while (Step(/*is_last=*/false, out)) {
  }
  if (!is_last) return;
  if (IsInCall()) calls_are_whole_ = false;
  while (Step(/*is_last=*/true, out)) {
  }
}

int CallFinder::TakeTextUntil(const std::vector<absl::string_view>& tags, bool is_last, AnswerText* out) {
  int found = -1;
  size_t at = pending_.size();
  size_t num_kept = 0;
  for (size_t i = 0; i < tags.size(); ++i) {
    const size_t place = pending_.find(tags[i].data(), 0, tags[i].size());
    if (place < at) {
      at = place;
      found = static_cast<int>(i);
    }
    if (place == pending_.npos && !is_last) num_kept = std::max(num_kept, PossibleTagBytes(pending_, tags[i]));
  }
  if (found < 0) at -= num_kept;
  absl::string_view content = absl::string_view(pending_).substr(0, at);
  // White space may come before a call. It is content only if something else follows, or if there are no calls.
  if (found >= 0 || !is_last || num_calls_ > 0) content = absl::StripTrailingAsciiWhitespace(content);
  absl::StrAppend(&out->content, content);
  if (found < 0) {
    is_last ? pending_.clear() : void(pending_.erase(0, content.size()));
    return found;
  }
  const size_t end = at + tags[static_cast<size_t>(found)].size();
  taken_ = pending_.substr(content.size(), end - content.size());
  pending_.erase(0, end);
  return found;
}

void CallFinder::Begin(const std::string& name, const std::string& id, AnswerText* out) {
  has_begun_ = true;
  is_left_out_ = options_->is_single && num_calls_ > 0;
  if (is_left_out_) return;
  out->calls.push_back({.index = num_calls_,
                        .id = id.empty() ? make_id_(num_calls_) : id,
                        .name = name,
                        .content_begin = out->content.size()});
  ++num_calls_;
}

void CallFinder::AddArguments(absl::string_view text, AnswerText* out) {
  if (is_left_out_ || text.empty()) return;
  absl::StrAppend(&arguments_, text);
  const size_t index = num_calls_ - 1;
  if (out->calls.empty() || out->calls.back().index != index) {
    out->calls.push_back({.index = index, .content_begin = out->content.size()});
  }
  absl::StrAppend(&out->calls.back().arguments, text);
}

void CallFinder::AddCall(const WholeCall& call, AnswerText* out) {
  Begin(call.name, "", out);
  AddArguments(call.arguments, out);
}

void CallFinder::End() {
  // The arguments need not be JSON, because they come from a model.
  if (!is_left_out_ && !Json::accept(arguments_)) calls_are_whole_ = false;
  arguments_.clear();
  has_begun_ = false;
  taken_.clear();
}

bool CallFinder::IsTool(const std::string& name) const {
  return std::find(options_->tools.begin(), options_->tools.end(), name) != options_->tools.end();
}

bool CallFinder::SkipSpace() {
  const size_t num_bytes = pending_.size() - absl::StripLeadingAsciiWhitespace(pending_).size();
  taken_.append(pending_, 0, num_bytes);
  pending_.erase(0, num_bytes);
  return pending_.empty();
}

bool CallFinder::Take(absl::string_view text) {
  if (!absl::StartsWith(pending_, text)) return false;
  pending_.erase(0, text.size());
  return true;
}

}  // namespace quire
