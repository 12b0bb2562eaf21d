// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_text.h"
#include "gateway/anthropic/cache_breakpoints.h"
#include "gateway/anthropic/message_error.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

// Appends the beginning of an event up to the members of its data.
void BeginEvent(absl::string_view type, std::string* out) {
  absl::StrAppend(out, "event: ", type, "\ndata: {\"type\":\"", type, "\"");
}

constexpr char kEventEnd[] = "}\n\n";

// What was cut, or is no object, cannot be the input of a call.
absl::string_view InputOf(absl::string_view arguments) {
  const Json json = ParsePart(arguments);
  return json.is_object() ? arguments : "{}";
}

}  // namespace

MessageAnswer::MessageAnswer(const GenerateCall& call, AnswerHead head)
    : OrderedAnswer(std::move(head), "toolu_"), call_(call) {}

std::string MessageAnswer::Add(size_t /*prompt_index*/, const v1::GenerateResponse& response) {
  std::string out;
  if (response.has_prompt_usage()) prompt_usage_ = response.prompt_usage();
  if (!std::exchange(has_begun_, true)) BeginMessage(response, &out);
  if (response.has_usage()) {
    // A manager that has taken the request over does not know what another one has pinned.
    const uint32_t num_tokens = response.usage().completion_tokens();
    usage_ = prompt_usage_.value_or(response.usage());
    usage_.set_completion_tokens(num_tokens);
  }
  if (call_.only_fills_cache) {
    finish_reason_ = v1::FINISH_REASON_LENGTH;
    usage_.set_completion_tokens(0);
    return out;
  }
  if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    finish_reason_ = response.finish_reason();
    if (response.has_stop()) stop_ = response.stop();
  }
  AddText(response, &out);
  return out;
}

void MessageAnswer::BeginMessage(const v1::GenerateResponse& first, std::string* out) {
  if (!call_.streams) return;
  BeginEvent("message_start", out);
  *out += ",\"message\":";
  AppendHead(out);
  *out += "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":";
  // Without pins, the manager tells at the end how much of the prompt was cached.
  v1::Usage usage = prompt_usage_.value_or(v1::Usage());
  if (!prompt_usage_.has_value()) usage.set_prompt_tokens(first.position());
  AppendUsage(usage, out);
  absl::StrAppend(out, "}", kEventEnd);
}

void MessageAnswer::BeginBlock(Block block, std::string* out) {
  EndBlock(out);
  if (call_.streams) {
    BeginEvent("content_block_start", out);
    absl::StrAppend(out, ",\"index\":", blocks_.size(), ",\"content_block\":");
    AppendBlock(block, out);
    *out += kEventEnd;
    if (blocks_.empty()) {
      BeginEvent("ping", out);
      *out += kEventEnd;
    }
  }
  num_bytes_ += sizeof(Block) + block.id.size() + block.name.size();
  blocks_.push_back(std::move(block));
}

void MessageAnswer::EndBlock(std::string* out) {
  if (!call_.streams || blocks_.empty()) return;
  const size_t index = blocks_.size() - 1;
  if (blocks_.back().kind == Kind::kThinking) {
    BeginEvent("content_block_delta", out);
    absl::StrAppend(out, ",\"index\":", index, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}",
                    kEventEnd);
  }
  BeginEvent("content_block_stop", out);
  absl::StrAppend(out, ",\"index\":", index, kEventEnd);
}

void MessageAnswer::BeginCall(const ToolCallDelta& call, std::string* out) {
  BeginBlock({.kind = Kind::kToolUse, .id = call.id, .name = call.name}, out);
}

void MessageAnswer::AddBlockText(Kind kind, absl::string_view text, std::string* out) {
  if (blocks_.empty() || blocks_.back().kind != kind) BeginBlock({.kind = kind}, out);
  AddDelta(text, out);
}

void MessageAnswer::AddDelta(absl::string_view text, std::string* out) {
  if (!call_.streams) {
    absl::StrAppend(&blocks_.back().text, text);
    num_bytes_ += text.size();
    return;
  }
  BeginEvent("content_block_delta", out);
  absl::StrAppend(out, ",\"index\":", blocks_.size() - 1, ",\"delta\":{\"type\":");
  switch (blocks_.back().kind) {
    case Kind::kThinking:
      *out += "\"thinking_delta\",\"thinking\":";
      break;
    case Kind::kText:
      *out += "\"text_delta\",\"text\":";
      break;
    case Kind::kToolUse:
      *out += "\"input_json_delta\",\"partial_json\":";
  }
  AppendJsonString(text, out);
  absl::StrAppend(out, "}", kEventEnd);
}

std::string MessageAnswer::LastEvents() {
  std::string out;
  EndBlock(&out);
  BeginEvent("message_delta", &out);
  out += ",\"delta\":{";
  AppendStop(&out);
  out += "},\"usage\":";
  AppendUsage(usage_, &out);
  out += kEventEnd;
  BeginEvent("message_stop", &out);
  return out + kEventEnd;
}

std::string MessageAnswer::Body() {
  std::string body;
  body.reserve(num_bytes_);
  AppendHead(&body);
  for (Block& block : blocks_) {
    if (body.back() != '[') body += ',';
    if (block.kind == Kind::kToolUse) block.text = std::string(InputOf(block.text));
    AppendBlock(block, &body);
    block.text = std::string();
  }
  body += "],";
  AppendStop(&body);
  body += ",\"usage\":";
  AppendUsage(usage_, &body);
  body += '}';
  return body;
}

void MessageAnswer::AppendHead(std::string* out) const {
  *out += "{\"id\":";
  AppendJsonString(head().id, out);
  *out += ",\"type\":\"message\",\"role\":\"assistant\",\"model\":";
  AppendJsonString(head().model, out);
  *out += ",\"content\":[";
}

void MessageAnswer::AppendBlock(const Block& block, std::string* out) {
  switch (block.kind) {
    case Kind::kThinking:
      *out += "{\"type\":\"thinking\",\"thinking\":";
      AppendJsonString(block.text, out);
      *out += ",\"signature\":\"\"}";
      break;
    case Kind::kText:
      *out += "{\"type\":\"text\",\"text\":";
      AppendJsonString(block.text, out);
      *out += '}';
      break;
    case Kind::kToolUse:
      *out += "{\"type\":\"tool_use\",\"id\":";
      AppendJsonString(block.id, out);
      *out += ",\"name\":";
      AppendJsonString(block.name, out);
      absl::StrAppend(out, ",\"input\":", block.text.empty() ? "{}" : block.text, "}");
  }
}

void MessageAnswer::AppendStop(std::string* out) const {
  absl::StrAppend(out, "\"stop_reason\":\"", StopReason(), "\",\"stop_sequence\":");
  if (stop_.has_value()) {
    AppendJsonString(*stop_, out);
  } else {
    *out += "null";
  }
}

const char* MessageAnswer::StopReason() const {
  switch (finish_reason_) {
    case v1::FINISH_REASON_LENGTH:
      return call_.is_cut_to_context ? "model_context_window_exceeded" : "max_tokens";
    case v1::FINISH_REASON_ABORT:
      return "refusal";  // An operator has ended the request.
    default:
      if (stop_.has_value()) return "stop_sequence";
      return has_whole_calls() ? "tool_use" : "end_turn";
  }
}

// The prompt is divided at three positions, none of which is before the one in front of it: the end of what was cached,
// of the longest prefix that is pinned for an hour, and of the longest one that is pinned at all.
void MessageAnswer::AppendUsage(const v1::Usage& usage, std::string* out) const {
  const uint32_t read_end = usage.cached_tokens();
  uint32_t hour_end = read_end;
  uint32_t pins_end = read_end;
  for (int i = 0; i < usage.pins_size() && i < static_cast<int>(call_.pin_seconds.size()); ++i) {
    const uint32_t num_tokens = usage.pins(i).pinned_tokens();
    pins_end = std::max(pins_end, num_tokens);
    if (call_.pin_seconds[i] == kLongCacheSeconds) hour_end = std::max(hour_end, num_tokens);
  }
  absl::StrAppend(out, "{\"input_tokens\":", usage.prompt_tokens() - pins_end,
                  ",\"cache_creation_input_tokens\":", pins_end - read_end, ",\"cache_read_input_tokens\":", read_end,
                  ",\"cache_creation\":{\"ephemeral_5m_input_tokens\":", pins_end - hour_end,
                  ",\"ephemeral_1h_input_tokens\":", hour_end - read_end,
                  "},\"output_tokens\":", usage.completion_tokens(), "}");
}

std::string MessageAnswer::ErrorEvent(const ApiError& error, const std::string& request_id) const {
  return absl::StrCat("event: error\ndata: ", MessageErrorBody(error, request_id), "\n\n");
}

}  // namespace quire
