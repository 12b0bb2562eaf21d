// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/generate_answer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"
#include "gateway/web/error_body.h"

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

// This is what vLLM calls stop_reason: the stop string or the stop token that ended the sample.
Json StopReason(const v1::GenerateResponse& response) {
  if (response.has_stop()) return response.stop();
  if (response.has_stop_token_id()) return response.stop_token_id();
  return nullptr;
}

// Makes the id of a call from a name that no other call has. Templates of Mistral accept nine letters and digits only.
std::string CallId(const std::string& name, ToolCallFormat format) {
  constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  size_t hash = std::hash<std::string>()(name);
  std::string digits;
  for (int i = 0; i < 9; ++i, hash /= 36) digits += kDigits[hash % 36];
  return format == ToolCallFormat::kMistral ? digits : absl::StrCat("call_", digits);
}

// Appends "[first, second]" to the list of logprobs that were collected before.
void AppendLogprobs(Json more, Json* all) {
  if (more.is_null()) return;
  if (all->is_null()) {
    *all = std::move(more);
    return;
  }
  for (auto& [name, list] : more.items()) {
    for (Json& entry : list) (*all)[name].push_back(std::move(entry));
  }
}

// Takes the generated token out of a response of a choice. If it is the first one, the echo of the prompt stays.
void LeaveEcho(bool is_first, v1::GenerateResponse* response) {
  std::string* const text = response->mutable_text_delta();
  if (!is_first) {
    text->clear();
  } else if (!response->logprobs().empty()) {
    size_t end = 0;
    for (uint32_t i = response->logprobs(0).text_offset(); i > 0 && end < text->size(); --i)
      end += Utf8Length((*text)[end]);
    text->resize(std::min(end, text->size()));
  }
  response->clear_logprobs();
  response->clear_token_ids();
  response->clear_stop_match();
  if (response->has_usage()) response->mutable_usage()->set_completion_tokens(0);
  if (response->finish_reason() == v1::FINISH_REASON_STOP) response->set_finish_reason(v1::FINISH_REASON_LENGTH);
}

}  // namespace

GenerateAnswer::GenerateAnswer(const GenerateCall& call, const AnswerHead& head)
    : call_(call),
      head_(head),
      choices_(call.requests.size() * call.num_choices),
      prompt_logprobs_(call.requests.size()),
      prompt_tokens_(call.requests.size()),
      usages_(call.requests.size()) {
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
      return CallId(absl::StrCat(head_.id, "/", i, "/", call), syntax_.tool_calls.format);
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

std::string GenerateAnswer::Add(size_t prompt, const v1::GenerateResponse& response) {
  const size_t index = prompt * call_.num_choices + response.index();
  if (index >= choices_.size()) return "";
  if (!call_.echoes_only) return AddTo(index, response);
  v1::GenerateResponse echo = response;
  LeaveEcho(!std::exchange(choices_[index].has_echo, true), &echo);
  return AddTo(index, echo);
}

std::string GenerateAnswer::AddTo(size_t index, const v1::GenerateResponse& response) {
  const size_t prompt = index / call_.num_choices;
  if (response.prompt_logprobs_size() > 0) prompt_logprobs_[prompt] = response.prompt_logprobs();
  if (response.has_usage()) {
    usages_[prompt] = response.usage();
    has_usage_ = true;
  }
  if (call_.is_resumable) {
    position_.Note(response);
    if (response.request_id() != head_.id) SetId(response.request_id());  // The stream was resumed.
  }
  Choice* const choice = &choices_[index];
  Json logprobs = LogprobsOf(choice, prompt, response);
  if (call_.streams) return EventsOf(choice, index, response, std::move(logprobs));
  Collect(choice, response, std::move(logprobs));
  return "";
}

Json GenerateAnswer::LogprobsOf(Choice* choice, size_t prompt, const v1::GenerateResponse& response) {
  if (!call_.logprobs.has_value()) return nullptr;
  if (call_.is_chat) {
    if (response.logprobs_size() == 0) return nullptr;
    return {{"content", ChatLogprobs(response.logprobs())}};
  }
  if (call_.echoes_logprobs && !choice->has_begun) {
    choice->completion_logprobs.Add(prompt_logprobs_[prompt], *call_.logprobs);
  }
  choice->has_begun = true;
  choice->completion_logprobs.Add(response.logprobs(), *call_.logprobs);
  return choice->completion_logprobs.Take();
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
  const LogprobList& list = prompt_logprobs_[index / call_.num_choices];
  if (!call_.has_prompt_logprobs || choice->has_prompt_logprobs || list.empty() || (call_.is_chat && index > 0)) {
    return "";
  }
  choice->has_prompt_logprobs = true;
  return absl::StrCat(",\"prompt_logprobs\":", Dump(PromptLogprobs(list)));
}

std::string GenerateAnswer::PromptTokensMember(Choice* choice, size_t index) {
  if (!call_.returns_token_ids || std::exchange(choice->has_prompt_tokens, true)) return "";
  return absl::StrCat(",\"prompt_token_ids\":[", absl::StrJoin(prompt_tokens_[index / call_.num_choices], ","), "]");
}

std::string GenerateAnswer::UsageMember(const Choice& choice, uint32_t completion_tokens) const {
  if (!call_.includes_usage) return "";
  if (!call_.includes_running_usage) return ",\"usage\":null";
  const uint32_t prompt_tokens = choice.prompt_tokens.value_or(0);
  return absl::StrCat(",\"usage\":{\"prompt_tokens\":", prompt_tokens, ",\"completion_tokens\":", completion_tokens,
                      ",\"total_tokens\":", prompt_tokens + completion_tokens, "}");
}

std::string GenerateAnswer::EventsOf(Choice* choice, size_t index, const v1::GenerateResponse& response,
                                     Json logprobs) {
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
  if (text.empty() && reason.empty() && logprobs.is_null() && prompt_logprobs.empty() && !has_token_ids) return out;
  // An event without text has no id, so a client that has lost its text gets it again.
  if (call_.is_resumable && position_.CanResume()) absl::StrAppend(&out, "id: ", position_.Id(), "\n");
  absl::StrAppend(&out, event_begin_, "{\"index\":", index);
  if (!call_.is_chat) {
    out += ",\"text\":";
    AppendJsonString(text.content, &out);
  } else {
    out += ",\"delta\":";
    AppendDelta(text, &out);
  }
  out += ",\"logprobs\":";
  out += logprobs.is_null() ? "null" : Dump(logprobs);
  out += ",\"finish_reason\":";
  if (reason.empty()) {
    out += "null";
  } else {
    absl::StrAppend(&out, "\"", reason, "\",\"stop_reason\":", Dump(StopReason(response)));
  }
  if (call_.returns_token_ids) {
    absl::StrAppend(&out, ",\"token_ids\":[", absl::StrJoin(response.token_ids(), ","), "]");
  }
  if (call_.is_chat) {
    absl::StrAppend(&out, "}]", prompt_logprobs, usage, "}\n\n");
  } else {
    absl::StrAppend(&out, PromptTokensMember(choice, index), prompt_logprobs, "}]", usage, "}\n\n");
  }
  return out;
}

void GenerateAnswer::Collect(Choice* choice, const v1::GenerateResponse& response, Json logprobs) {
  Append(TextOf(choice, response), &choice->text);
  AppendLogprobs(std::move(logprobs), &choice->logprobs);
  if (call_.returns_token_ids) {
    choice->token_ids.insert(choice->token_ids.end(), response.token_ids().begin(), response.token_ids().end());
  }
  if (response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
  choice->finish_reason = FinishReasonOf(*choice, response);
  choice->stop_reason = StopReason(response);
}

Json GenerateAnswer::UsageJson() const {
  uint64_t prompt = 0;
  uint64_t completion = 0;
  uint64_t cached = 0;
  for (const v1::Usage& usage : usages_) {
    prompt += usage.prompt_tokens();
    completion += usage.completion_tokens();
    cached += usage.cached_tokens();
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::string GenerateAnswer::LastEvents() const {
  // A client that has read all samples before it came back has lost the usage.
  if (!call_.includes_usage || !has_usage_) return kEnd;
  return absl::StrCat(event_begin_, "],\"usage\":", Dump(UsageJson()), "}\n\n", kEnd);
}

std::string GenerateAnswer::Body() const {
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    if (choice.finish_reason.empty()) continue;  // A beam search may find fewer hypotheses.
    Json entry = {{"index", i}};
    if (call_.is_chat) {
      entry["message"] = MessageJson(choice.text);
    } else {
      entry["text"] = choice.text.content;
    }
    entry["logprobs"] = choice.logprobs;
    entry["finish_reason"] = choice.finish_reason;
    entry["stop_reason"] = choice.stop_reason;
    if (call_.has_prompt_logprobs && !call_.is_chat) {
      entry["prompt_logprobs"] = PromptLogprobs(prompt_logprobs_[i / call_.num_choices]);
    }
    if (call_.returns_token_ids) {
      entry["token_ids"] = choice.token_ids;
      if (!call_.is_chat) entry["prompt_token_ids"] = prompt_tokens_[i / call_.num_choices];
    }
    choices.push_back(std::move(entry));
  }
  Json body = {{"id", head_.id},
               {"object", call_.is_chat ? "chat.completion" : "text_completion"},
               {"created", head_.created_unix_sec},
               {"model", head_.model},
               {"choices", std::move(choices)},
               {"usage", UsageJson()}};
  if (call_.has_prompt_logprobs && call_.is_chat) body["prompt_logprobs"] = PromptLogprobs(prompt_logprobs_[0]);
  if (call_.returns_token_ids && call_.is_chat) body["prompt_token_ids"] = prompt_tokens_[0];
  return Dump(body);
}

std::string GenerateAnswer::ErrorEvent(const ApiError& error) {
  return absl::StrCat("data: ", error.Body(), "\n\n");
}

}  // namespace quire
