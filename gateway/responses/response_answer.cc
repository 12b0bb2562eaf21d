// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/response_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_text.h"
#include "gateway/openai/call_id.h"
#include "gateway/openai/obfuscation.h"
#include "gateway/responses/response_tools.h"
#include "gateway/responses/thoughts_token.h"

namespace quire {
namespace {

constexpr char kEventEnd[] = "}\n\n";

// The text that was kept, and its copies in the events that end a text, its part, its item and the response.
constexpr size_t kCopiesOfStream = 5;
// The last two events have thoughts as tokens as well, which are longer.
constexpr size_t kCopiesOfTokens = 3;

std::string Quoted(absl::string_view text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

// Returns an error of a response. OpenAI has these codes of what is possible here.
std::string ErrorJson(int http_code, absl::string_view message) {
  const char* const code = http_code == 429   ? "rate_limit_exceeded"
                           : http_code == 400 ? "invalid_prompt"
                                              : "server_error";
  return absl::StrCat("{\"code\":\"", code, "\",\"message\":", Quoted(message), "}");
}

std::string NumberedEvent(absl::string_view type, uint64_t number) {
  return absl::StrCat("event: ", type, "\ndata: {\"type\":\"", type, "\",\"sequence_number\":", number);
}

}  // namespace

ResponseAnswer::ResponseAnswer(const GenerateCall& call, AnswerHead head)
    : OrderedAnswer(std::move(head), "call_"), call_(call), settings_(*call.response) {
  // A stream repeats the request in three events.
  num_bytes_ = settings_.echo.size() * (call_.streams ? 3 : 1);
}

std::string ResponseAnswer::Add(size_t /*prompt_index*/, const v1::GenerateResponse& response) {
  std::string out;
  if (!std::exchange(has_begun_, true) && call_.streams) {
    for (const char* type : {"response.created", "response.in_progress"}) {
      BeginEvent(type, &out);
      out += ",\"response\":";
      AppendResponse({.status = "in_progress"}, &out);
      out += kEventEnd;
    }
  }
  if (response.has_usage()) usage_ = response.usage();
  if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish_reason_ = response.finish_reason();
  num_tokens_ += static_cast<uint64_t>(response.token_ids_size());
  num_logprobs_ += CountLogprobs(response.logprobs());
  logprobs_.Add(response.logprobs(), call_.token_name);
  AddText(response, &out);
  // Without tags to look for, all tokens belong to the text, also one that has ended it.
  if (is_plain() && !logprobs_.empty()) AddContent("", &out);
  return out;
}

void ResponseAnswer::AddThoughts(absl::string_view text, std::string* out) {
  num_reasoning_tokens_ = num_tokens_;
  logprobs_.Drop();
  if (!is_open_ || items_.back().kind != Kind::kThoughts) BeginItem({.kind = Kind::kThoughts}, out);
  AddDelta(text, "", out);
}

void ResponseAnswer::AddContent(absl::string_view text, std::string* out) {
  const bool is_new = !is_open_ || items_.back().kind != Kind::kText;
  if (is_new) BeginItem({.kind = Kind::kText}, out);
  if (is_new && !is_plain()) logprobs_.DropBefore(text);
  AddDelta(text, logprobs_.Take(), out);
}

void ResponseAnswer::BeginCall(const ToolCallDelta& call, std::string* out) {
  const auto tool = settings_.tools.find(call.name);
  Item item{.kind = Kind::kCall, .call_id = call.id, .tool = {.name = call.name}};
  if (tool != settings_.tools.end()) item.tool = tool->second;
  if (item.tool.is_custom) item.kind = Kind::kCustomCall;
  BeginItem(std::move(item), out);
}

void ResponseAnswer::AddArguments(absl::string_view text, std::string* out) {
  logprobs_.Drop();
  AddDelta(text, "", out);
}

void ResponseAnswer::BeginItem(Item item, std::string* out) {
  EndItem(/*is_complete=*/true, out);
  constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_", "ctc_"};
  item.id = CallId(kPrefixes[static_cast<size_t>(item.kind)], absl::StrCat(head().id, "/item/", items_.size()),
                   ToolCallFormat::kNone);
  items_.push_back(std::move(item));
  is_open_ = true;
  const Item& last = items_.back();
  Count(sizeof(Item) + last.id.size() + last.call_id.size() + last.tool.name.size() + last.tool.space.size());
  if (!call_.streams) return;
  AppendWholeItemEvent("response.output_item.added", "in_progress", out);
  if (last.kind == Kind::kCall || last.kind == Kind::kCustomCall) return;
  AppendItemEvent("response.content_part.added", absl::StrCat(",\"content_index\":0,\"part\":", TextPart(last, "")),
                  out);
}

void ResponseAnswer::AddDelta(absl::string_view text, const std::string& logprobs, std::string* out) {
  Item* const item = &items_.back();
  absl::StrAppend(&item->text, text);
  if (!logprobs.empty()) absl::StrAppend(&item->logprobs, item->logprobs.empty() ? "" : ",", logprobs);
  Count(text.size() + logprobs.size());
  // The input of a custom tool is a part of JSON, which must be complete to be read.
  if (!call_.streams || item->kind == Kind::kCustomCall) return;
  const size_t begin = out->size();
  const std::string delta = absl::StrCat(",\"delta\":", Quoted(text));
  std::string members;
  const char* type = "";
  switch (item->kind) {
    case Kind::kThoughts:
      type = "response.reasoning_text.delta";
      members = absl::StrCat(",\"content_index\":0", delta);
      break;
    case Kind::kText:
      type = "response.output_text.delta";
      members = absl::StrCat(",\"content_index\":0", delta, ",\"logprobs\":[", logprobs, "]");
      break;
    default:
      type = "response.function_call_arguments.delta";
      members = delta;
  }
  AppendItemEvent(type, members, out);
  if (!call_.has_obfuscation) return;
  out->resize(out->size() - (sizeof(kEventEnd) - 1));
  AppendObfuscation(begin, out);
  *out += kEventEnd;
}

void ResponseAnswer::EndItem(bool is_complete, std::string* out) {
  if (!std::exchange(is_open_, false)) return;
  Item* const item = &items_.back();
  item->is_complete = is_complete;
  if (item->kind == Kind::kCustomCall) item->text = CustomInput(item->text);
  if (!call_.streams) return;
  const std::string text = Quoted(item->text);
  switch (item->kind) {
    case Kind::kThoughts:
      AppendItemEvent("response.reasoning_text.done", absl::StrCat(",\"content_index\":0,\"text\":", text), out);
      break;
    case Kind::kText:
      AppendItemEvent("response.output_text.done",
                      absl::StrCat(",\"content_index\":0,\"text\":", text, ",\"logprobs\":[", item->logprobs, "]"),
                      out);
      break;
    case Kind::kCall:
      AppendItemEvent("response.function_call_arguments.done",
                      absl::StrCat(",\"name\":", Quoted(item->tool.name), ",\"arguments\":", text), out);
      break;
    case Kind::kCustomCall:
      AppendItemEvent("response.custom_tool_call_input.delta", absl::StrCat(",\"delta\":", text), out);
      AppendItemEvent("response.custom_tool_call_input.done", absl::StrCat(",\"input\":", text), out);
  }
  if (item->kind == Kind::kThoughts || item->kind == Kind::kText) {
    AppendItemEvent("response.content_part.done",
                    absl::StrCat(",\"content_index\":0,\"part\":", TextPart(*item, item->text)), out);
  }
  AppendWholeItemEvent("response.output_item.done", is_complete ? "completed" : "incomplete", out);
}

ResponseAnswer::End ResponseAnswer::EndAnswer(std::string* out) {
  // An answer without text is a message without text.
  if (items_.empty()) BeginItem({.kind = Kind::kText}, out);
  const bool is_cut = finish_reason_ != v1::FINISH_REASON_STOP;
  const bool is_call = items_.back().kind == Kind::kCall || items_.back().kind == Kind::kCustomCall;
  EndItem(!is_cut || (is_call && has_whole_calls()), out);
  switch (finish_reason_) {
    case v1::FINISH_REASON_LENGTH:
      return {.status = "incomplete", .incomplete = "max_output_tokens"};
    case v1::FINISH_REASON_ABORT:
      return {.status = "failed", .error = ErrorJson(500, "an operator has aborted the request")};
    default:
      return {.status = "completed"};
  }
}

std::string ResponseAnswer::LastEvents() {
  std::string out;
  const End end = EndAnswer(&out);
  BeginEvent(absl::StrCat("response.", end.status), &out);
  out += ",\"response\":";
  AppendResponse(end, &out);
  return out + kEventEnd;
}

std::string ResponseAnswer::Body() {
  std::string body;
  const End end = EndAnswer(&body);
  body.reserve(num_bytes_);
  AppendResponse(end, &body);
  return body;
}

std::string ResponseAnswer::ErrorEvent(const ApiError& error, const std::string& /*request_id*/) const {
  const auto or_null = [](const std::optional<std::string>& text) { return text.has_value() ? Quoted(*text) : "null"; };
  std::string out = absl::StrCat(NumberedEvent("error", num_events_), ",\"code\":", or_null(error.code),
                                 ",\"message\":", Quoted(error.message), ",\"param\":", or_null(error.param), kEventEnd,
                                 NumberedEvent("response.failed", num_events_ + 1), ",\"response\":");
  AppendResponse({.status = "failed", .error = ErrorJson(error.http_code, error.message)}, &out);
  return out + kEventEnd;
}

void ResponseAnswer::BeginEvent(absl::string_view type, std::string* out) {
  *out += NumberedEvent(type, num_events_++);
}

void ResponseAnswer::AppendItemEvent(absl::string_view type, absl::string_view members, std::string* out) {
  BeginEvent(type, out);
  absl::StrAppend(out, ",\"output_index\":", items_.size() - 1, ",\"item_id\":\"", items_.back().id, "\"", members,
                  kEventEnd);
}

void ResponseAnswer::AppendWholeItemEvent(absl::string_view type, absl::string_view status, std::string* out) {
  BeginEvent(type, out);
  absl::StrAppend(out, ",\"output_index\":", items_.size() - 1, ",\"item\":");
  AppendItem(items_.back(), status, /*has_text=*/status != "in_progress", out);
  *out += kEventEnd;
}

std::string ResponseAnswer::TextPart(const Item& item, absl::string_view text) const {
  if (item.kind == Kind::kThoughts) return absl::StrCat("{\"type\":\"reasoning_text\",\"text\":", Quoted(text), "}");
  return absl::StrCat("{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[", item.logprobs,
                      "],\"text\":", Quoted(text), "}");
}

void ResponseAnswer::AppendItem(const Item& item, absl::string_view status, bool has_text, std::string* out) const {
  const absl::string_view text = has_text ? item.text : absl::string_view();
  absl::StrAppend(out, "{\"id\":\"", item.id, "\",\"type\":\"");
  switch (item.kind) {
    case Kind::kThoughts:
      absl::StrAppend(out, "reasoning\",\"summary\":[],\"content\":[", has_text ? TextPart(item, text) : "",
                      "],\"encrypted_content\":");
      *out += has_text && settings_.keeps_thoughts ? Quoted(ThoughtsToken(text)) : "null";
      break;
    case Kind::kText:
      absl::StrAppend(out, "message\",\"role\":\"assistant\",\"content\":[", has_text ? TextPart(item, text) : "", "]");
      break;
    case Kind::kCall:
    case Kind::kCustomCall:
      absl::StrAppend(out, item.kind == Kind::kCall ? "function_call" : "custom_tool_call",
                      "\",\"call_id\":", Quoted(item.call_id), ",\"name\":", Quoted(item.tool.name));
      if (!item.tool.space.empty()) absl::StrAppend(out, ",\"namespace\":", Quoted(item.tool.space));
      absl::StrAppend(out, item.kind == Kind::kCall ? ",\"arguments\":" : ",\"input\":", Quoted(text));
  }
  absl::StrAppend(out, ",\"status\":\"", status, "\"}");
}

void ResponseAnswer::AppendResponse(const End& end, std::string* out) const {
  absl::StrAppend(out, "{\"id\":", Quoted(head().id),
                  ",\"object\":\"response\",\"created_at\":", head().created_unix_sec, ",\"status\":\"", end.status,
                  "\",\"error\":", end.error, ",\"incomplete_details\":");
  if (end.incomplete == nullptr) {
    *out += "null";
  } else {
    absl::StrAppend(out, "{\"reason\":\"", end.incomplete, "\"}");
  }
  absl::StrAppend(out, ",\"model\":", Quoted(head().model), ",\"output\":[");
  for (const Item& item : items_) {
    if (&item != &items_.front()) *out += ',';
    AppendItem(item, item.is_complete ? "completed" : "incomplete", /*has_text=*/true, out);
  }
  *out += "],\"usage\":";
  AppendUsage(out);
  absl::StrAppend(out, ",", settings_.echo, "}");
}

void ResponseAnswer::AppendUsage(std::string* out) const {
  if (finish_reason_ == v1::FINISH_REASON_UNSPECIFIED) {
    *out += "null";
    return;
  }
  absl::StrAppend(out, "{\"input_tokens\":", usage_.prompt_tokens(),
                  ",\"input_tokens_details\":{\"cached_tokens\":", usage_.cached_tokens(),
                  ",\"cache_write_tokens\":0},\"output_tokens\":", usage_.completion_tokens(),
                  ",\"output_tokens_details\":{\"reasoning_tokens\":", num_reasoning_tokens_,
                  "},\"total_tokens\":", usage_.prompt_tokens() + usage_.completion_tokens(), "}");
}

void ResponseAnswer::Count(size_t num_bytes) {
  num_bytes_ += num_bytes * (call_.streams ? kCopiesOfStream + (settings_.keeps_thoughts ? kCopiesOfTokens : 0) : 1);
}

}  // namespace quire
