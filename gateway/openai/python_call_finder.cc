// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/python_call_finder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/python_literal.h"
#include "gateway/openai/tag_search.h"

namespace quire {
namespace {

std::optional<std::vector<WholeCall>> ParseList(absl::string_view text) {
  if (std::optional<std::vector<WholeCall>> calls = ParsePythonCalls(text)) return calls;
  const Json list = ParsePart(text);
  if (!list.is_array()) return std::nullopt;
  std::vector<WholeCall> calls;
  for (const Json& object : list) {
    std::optional<WholeCall> call = ParseWholeCall(object);
    if (!call.has_value()) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  return calls;
}

}  // namespace

PythonCallFinder::PythonCallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id)
    : CallFinder(options, std::move(make_id)), tags_({syntax().open}), is_in_list_(options->begins_in_call) {}

bool PythonCallFinder::Step(bool is_last, AnswerText* out) {
  if (!is_in_list_) {
    is_in_list_ = TakeTextUntil(tags_, is_last, out) >= 0;
    num_searched_ = 0;
    quote_ = '\0';
    return is_in_list_;
  }
  const absl::string_view close = syntax().close;
  if (!SearchClose()) {
    if (!is_last) return false;
    out->content += absl::StrCat(taken_, pending_);
    pending_.clear();
    return false;
  }
  const std::optional<std::vector<WholeCall>> calls = ParseList(absl::string_view(pending_).substr(0, num_searched_));
  is_in_list_ = false;
  if (!calls.has_value() || calls->empty() ||
      !std::all_of(calls->begin(), calls->end(), [this](const WholeCall& call) { return IsTool(call.name); })) {
    out->content += std::exchange(taken_, std::string());
    return true;
  }
  for (const WholeCall& call : *calls) {
    AddCall(call, out);
    End();
  }
  pending_.erase(0, num_searched_ + close.size());
  return true;
}

bool PythonCallFinder::SearchClose() {
  const absl::string_view close = syntax().close;
  for (; num_searched_ < pending_.size(); ++num_searched_) {
    const char c = pending_[num_searched_];
    if (quote_ != '\0') {
      if (c == '\\') {
        if (num_searched_ + 1 == pending_.size()) return false;
        ++num_searched_;
      }
      if (c == quote_) quote_ = '\0';
    } else if (c == '"' || c == '\'') {
      quote_ = c;
    } else if (c == close[0]) {
      const absl::string_view rest = absl::string_view(pending_).substr(num_searched_);
      if (absl::StartsWith(rest, close)) return true;
      if (CouldBecome(rest, close)) return false;
    }
  }
  return false;
}

}  // namespace quire
