// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/generate_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_text.h"
#include "gateway/openai/call_id.h"
#include "gateway/openai/obfuscation.h"

namespace quire {
namespace {

constexpr char kEnd[] = "data: [DONE]\n\n";

const char* FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_ABORT:
      return "abort";
    default:
      return "";
  }
}

// vLLM calls this stop_reason: the stop string or the stop token that ended the sample.
Json StopReason(const v1::GenerateResponse& response) {
  if (response.has_stop()) return response.stop();
  if (response.has_stop_token_id()) return response.stop_token_id();
  return nullptr;
}

}  // namespace

GenerateAnswer::GenerateAnswer(const GenerateCall& call, const AnswerHead& head)
    : call_(call),
      head_(head),
      choices_(call.requests.size() * call.num_choices),
      prompts_(call.requests.size()),
      num_bytes_(BytesAtStart(call)) {
  SetId(head.id);
}

void GenerateAnswer::SetId(const std::string& id) {
  head_.id = id;
  event_begin_ = "data: {\"id\":";
  AppendJsonString(head_.id, &event_begin_);
  absl::StrAppend(&event_begin_, ",\"object\":\"", call_.is_chat ? "chat.completion.chunk" : "text_completion",
                  "\",\"created\":", head_.created_unix_sec, ",\"model\":");
  AppendJsonString(head_.model, &event_begin_);
  event_begin_ += ",\"choices\":[";
}

void GenerateAnswer::SetSyntax(AnswerSyntax syntax) {
  syntax_ = std::move(syntax);
  if (syntax_.is_plain()) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].parser.emplace(&syntax_, [this, i](size_t call) {
      return CallId("call_", absl::StrCat(head_.id, "/", i, "/", call), syntax_.tool_calls.format);
    });
  }
}

void GenerateAnswer::SetBeginsInReasoning(bool begins_in_reasoning) {
  if (syntax_.has_reasoning) {
    syntax_.begins_in_reasoning = begins_in_reasoning;
    SetSyntax(std::move(syntax_));
  }
}

void GenerateAnswer::ResumeBehind(const StreamPosition& position) {
  position_ = position;
  for (size_t i = 0; i < choices_.size(); ++i) choices_[i].has_begun = position.HasBegun(static_cast<uint32_t>(i));
}

std::string GenerateAnswer::Add(size_t prompt_index, const v1::GenerateResponse& response) {
  const size_t index = prompt_index * call_.num_choices + response.index();
  if (index >= choices_.size()) return "";
  Prompt* const prompt = &prompts_[prompt_index];
  if (response.prompt_logprobs_size() > 0) AddPromptLogprobs(prompt, response.prompt_logprobs());
  if (response.has_usage()) {
    prompt->usage = response.usage();
    has_usage_ = true;
  }
  if (call_.is_resumable) {
    position_.Note(response);
    if (response.request_id() != head_.id) SetId(response.request_id());  // The stream was resumed.
  }
  Choice* const choice = &choices_[index];
  AddLogprobs(choice, *prompt, response);
  if (call_.streams) return EventsOf(choice, index, response);
  Collect(choice, response);
  return "";
}

void GenerateAnswer::AddPromptLogprobs(Prompt* prompt, const LogprobList& positions) {
  if (std::exchange(prompt->has_logprobs, true)) return;
  const size_t num_logprobs = CountLogprobs(positions);
  if (call_.has_prompt_logprobs) {
    prompt->logprobs = PromptLogprobs(positions);
    num_logprobs_ += num_logprobs * (call_.is_chat ? 1 : call_.num_choices);
    num_bytes_ += prompt->logprobs.size();
  }
  if (call_.echoes_logprobs) {
    prompt->echoed.Add(positions, *call_.logprobs, call_.token_name);
    num_logprobs_ += num_logprobs * call_.num_choices;
    num_bytes_ += prompt->echoed.num_bytes();
  }
}

void GenerateAnswer::AddLogprobs(Choice* choice, const Prompt& prompt, const v1::GenerateResponse& response) {
  if (!call_.logprobs.has_value()) return;
  if (!call_.streams) num_logprobs_ += CountLogprobs(response.logprobs());
  const size_t num_bytes_before = choice->chat_logprobs.size() + choice->completion_logprobs.num_bytes();
  if (call_.is_chat) {
    AppendChatLogprobs(response.logprobs(), call_.token_name, &choice->chat_logprobs);
  } else {
    if (call_.echoes_logprobs && !choice->has_begun) choice->completion_logprobs.Add(prompt.echoed);
    choice->has_begun = true;
    choice->completion_logprobs.Add(response.logprobs(), *call_.logprobs, call_.token_name);
  }
  const size_t num_bytes = choice->chat_logprobs.size() + choice->completion_logprobs.num_bytes();
  if (!call_.streams) num_bytes_ += num_bytes - num_bytes_before;
}

std::string GenerateAnswer::TakeLogprobs(Choice* choice) const {
  if (!call_.is_chat) return choice->completion_logprobs.Take();
  if (choice->chat_logprobs.empty()) return "null";
  return absl::StrCat("{\"content\":[", std::exchange(choice->chat_logprobs, std::string()), "]}");
}

AnswerText GenerateAnswer::TextOf(Choice* choice, const v1::GenerateResponse& response) {
  if (!choice->parser.has_value()) return {.content = response.text_delta()};
  return choice->parser->Add(response.text_delta(), response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
}

// A call of the tool that the client has named is no decision of the model, so it ends with "stop", as in OpenAI's
// interface. So does a call that a stop string has cut.
std::string GenerateAnswer::FinishReasonOf(const Choice& choice, const v1::GenerateResponse& response) const {
  const bool has_calls = choice.parser.has_value() && choice.parser->has_whole_calls() && !call_.names_tool;
  if (has_calls && response.finish_reason() == v1::FINISH_REASON_STOP) return "tool_calls";
  return FinishReasonName(response.finish_reason());
}

std::string GenerateAnswer::PromptLogprobsMember(Choice* choice, size_t index) {
  const Prompt& prompt = prompts_[index / call_.num_choices];
  if (!call_.has_prompt_logprobs || choice->has_prompt_logprobs || !prompt.has_logprobs ||
      (call_.is_chat && index > 0)) {
    return "";
  }
  choice->has_prompt_logprobs = true;
  return absl::StrCat(",\"prompt_logprobs\":", prompt.logprobs);
}

std::string GenerateAnswer::PromptTokensMember(Choice* choice, size_t index) {
  if (!call_.returns_token_ids || std::exchange(choice->has_prompt_tokens, true)) return "";
  return absl::StrCat(",\"prompt_token_ids\":[", absl::StrJoin(prompts_[index / call_.num_choices].token_ids, ","),
                      "]");
}

std::string GenerateAnswer::UsageMember(const Choice& choice, uint32_t completion_tokens) const {
  if (!call_.includes_usage) return "";
  if (!call_.includes_running_usage) return ",\"usage\":null";
  const uint32_t prompt_tokens = choice.prompt_tokens.value_or(0);
  return absl::StrCat(",\"usage\":{\"prompt_tokens\":", prompt_tokens, ",\"completion_tokens\":", completion_tokens,
                      ",\"total_tokens\":", prompt_tokens + completion_tokens, "}");
}

std::string GenerateAnswer::EventsOf(Choice* choice, size_t index, const v1::GenerateResponse& response) {
  const std::string logprobs = TakeLogprobs(choice);
  if (!choice->prompt_tokens.has_value()) choice->prompt_tokens = response.position();
  choice->completion_tokens += static_cast<uint32_t>(response.token_ids_size());
  const std::string usage = UsageMember(*choice, choice->completion_tokens);
  const std::string prompt_logprobs = PromptLogprobsMember(choice, index);
  std::string out;
  if (call_.is_chat && !choice->has_begun) {
    absl::StrAppend(&out, event_begin_, "{\"index\":", index,
                    ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]",
                    PromptTokensMember(choice, index), UsageMember(*choice, 0), "}\n\n");
  }
  choice->has_begun = true;
  const AnswerText text = TextOf(choice, response);
  const std::string reason = FinishReasonOf(*choice, response);
  const bool has_token_ids = call_.returns_token_ids && response.token_ids_size() > 0;
  if (text.empty() && reason.empty() && logprobs == "null" && prompt_logprobs.empty() && !has_token_ids) return out;
  // An event without text has no id, so a client that has lost its text gets it again.
  if (call_.is_resumable && position_.CanResume()) absl::StrAppend(&out, "id: ", position_.Id(call_.is_chat), "\n");
  const size_t begin = out.size();
  absl::StrAppend(&out, event_begin_, "{\"index\":", index);
  if (!call_.is_chat) {
    out += ",\"text\":";
    AppendJsonString(text.content, &out);
  } else {
    out += ",\"delta\":";
    AppendDelta(text, &out);
  }
  absl::StrAppend(&out, ",\"logprobs\":", logprobs, ",\"finish_reason\":");
  if (reason.empty()) {
    out += "null";
  } else {
    absl::StrAppend(&out, "\"", reason, "\",\"stop_reason\":", Dump(StopReason(response)));
  }
  if (call_.returns_token_ids) {
    absl::StrAppend(&out, ",\"token_ids\":[", absl::StrJoin(response.token_ids(), ","), "]");
  }
  if (call_.is_chat) {
    absl::StrAppend(&out, "}]", prompt_logprobs, usage);
  } else {
    absl::StrAppend(&out, PromptTokensMember(choice, index), prompt_logprobs, "}]", usage);
  }
  if (call_.has_obfuscation) AppendObfuscation(begin, &out);
  out += "}\n\n";
  return out;
}

void GenerateAnswer::Collect(Choice* choice, const v1::GenerateResponse& response) {
  Append(TextOf(choice, response), &choice->text);
  num_bytes_ += response.text_delta().size();
  if (call_.returns_token_ids) {
    choice->token_ids.insert(choice->token_ids.end(), response.token_ids().begin(), response.token_ids().end());
    num_bytes_ += response.token_ids_size() * sizeof(uint32_t);
  }
  if (response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
  choice->finish_reason = FinishReasonOf(*choice, response);
  choice->stop_reason = StopReason(response);
}

Json GenerateAnswer::UsageJson() const {
  uint64_t prompt = 0;
  uint64_t completion = 0;
  uint64_t cached = 0;
  for (const Prompt& of : prompts_) {
    const v1::Usage& usage = of.usage;
    prompt += usage.prompt_tokens();
    completion += usage.completion_tokens();
    cached += usage.cached_tokens();
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::string GenerateAnswer::LastEvents() {
  // A client that has read all samples before it came back has lost the usage.
  if (!call_.includes_usage || !has_usage_) return kEnd;
  return absl::StrCat(event_begin_, "],\"usage\":", Dump(UsageJson()), "}\n\n", kEnd);
}

void GenerateAnswer::AppendChoice(size_t index, std::string* out) {
  Choice* const choice = &choices_[index];
  absl::StrAppend(out, out->back() == '[' ? "" : ",", "{\"index\":", index);
  if (call_.is_chat) {
    *out += ",\"message\":";
    AppendMessage(choice->text, out);
  } else {
    *out += ",\"text\":";
    AppendJsonString(choice->text.content, out);
  }
  choice->text = AnswerText();
  absl::StrAppend(out, ",\"logprobs\":", TakeLogprobs(choice), ",\"finish_reason\":\"", choice->finish_reason,
                  "\",\"stop_reason\":", Dump(choice->stop_reason));
  const Prompt& prompt = prompts_[index / call_.num_choices];
  if (call_.has_prompt_logprobs && !call_.is_chat) absl::StrAppend(out, ",\"prompt_logprobs\":", prompt.logprobs);
  if (call_.returns_token_ids) {
    absl::StrAppend(out, ",\"token_ids\":[", absl::StrJoin(choice->token_ids, ","), "]");
    if (!call_.is_chat) *out += PromptTokensMember(choice, index);
  }
  *out += '}';
}

std::string GenerateAnswer::Body() {
  std::string body;
  body.reserve(num_bytes_);
  body += "{\"id\":";
  AppendJsonString(head_.id, &body);
  absl::StrAppend(&body, ",\"object\":\"", call_.is_chat ? "chat.completion" : "text_completion",
                  "\",\"created\":", head_.created_unix_sec, ",\"model\":");
  AppendJsonString(head_.model, &body);
  body += ",\"choices\":[";
  for (size_t i = 0; i < choices_.size(); ++i) {
    // A beam search may find fewer hypotheses.
    if (!choices_[i].finish_reason.empty()) AppendChoice(i, &body);
  }
  absl::StrAppend(&body, "],\"usage\":", Dump(UsageJson()));
  if (call_.has_prompt_logprobs && call_.is_chat) {
    absl::StrAppend(&body, ",\"prompt_logprobs\":", prompts_[0].logprobs);
  }
  if (call_.returns_token_ids && call_.is_chat) body += PromptTokensMember(&choices_[0], 0);
  body += '}';
  return body;
}

std::string GenerateAnswer::ErrorEvent(const ApiError& error, const std::string& /*request_id*/) const {
  return absl::StrCat("data: ", error.Body(), "\n\n");
}

}  // namespace quire
