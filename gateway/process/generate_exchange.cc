// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/generate_exchange.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/policy/call_status.h"
#include "gateway/anthropic/message_answer.h"
#include "gateway/anthropic/message_error.h"
#include "gateway/openai/generate_answer.h"
#include "gateway/openai/logprob_limit.h"
#include "gateway/openai/model_list.h"
#include "gateway/openai/reranker.h"
#include "gateway/openai/score_answer.h"
#include "gateway/process/answer_deadline.h"
#include "gateway/process/manager_error.h"
#include "gateway/responses/response_answer.h"
#include "gateway/web/request_id.h"

namespace quire {
namespace {

// How long a client may stay away from a stream that can be resumed.
constexpr std::chrono::seconds kComeBackTime(30);
// Limit of the pairs of one request that are scored at the same time.
constexpr size_t kPairsAtOnce = 64;
// Making a grammar takes several times as long as reading a body of this size.
constexpr size_t kGrammarCost = 8;

// `may_stream` says that the same answer would take less memory as a stream.
ApiError AnswerTooLarge(size_t num_bytes, size_t max_bytes, bool may_stream) {
  const char* const or_stream = may_stream ? ", or for a stream" : "";
  if (num_bytes > max_bytes / 2) {
    return {.message = absl::StrCat("the answer has ", num_bytes, " bytes so far, and one caller may have at most ",
                                    max_bytes / 2, ", half of --max-answer-bytes; ask for less", or_stream),
            .code = "answer_too_large"};
  }
  return {
      .http_code = 429,
      .message = absl::StrCat("the answer has ", num_bytes, " bytes so far, and all answers together may take ",
                              max_bytes, " (--max-answer-bytes), of which the others leave this caller too little; ",
                              "try again, or ask for ", may_stream ? "a stream" : "less"),
      .type = "rate_limit_error",
      .code = "answer_memory_full",
      .retry_after_s = 1};
}

// Returns the content of the message that the answer continues, or nothing if it is a message of its own.
std::optional<absl::string_view> ContinuedContent(const v1::Chat& chat) {
  if (!chat.continue_final_message() || chat.messages().empty()) return std::nullopt;
  const v1::ChatMessage& last = *chat.messages().rbegin();
  return last.content_parts().empty() ? last.content() : *last.content_parts().rbegin();
}

const char* IdPrefix(const GenerateCall& call) {
  if (call.is_message) return "msg_";
  if (call.response != nullptr) return "resp_";
  if (call.rerank != nullptr) return "";  // The body names the kind of the answer.
  return call.is_chat ? "chatcmpl-" : "cmpl-";
}

std::unique_ptr<CallAnswer> NewAnswer(const GenerateCall& call, const AnswerHead& head) {
  if (call.is_message) return std::make_unique<MessageAnswer>(call, head);
  if (call.response != nullptr) return std::make_unique<ResponseAnswer>(call, head);
  if (call.rerank != nullptr) return std::make_unique<ScoreAnswer>(call, head);
  return std::make_unique<GenerateAnswer>(call, head);
}

}  // namespace

WebResponse ResponseOf(const ApiError& error, const WebRequest& request) {
  const bool is_message = IsMessagePath(request.path);
  WebResponse response{.code = is_message ? MessageErrorCode(error) : error.http_code,
                       .body = is_message ? MessageErrorBody(error, request.id) : error.Body(),
                       .error_param = error.param.value_or(""),
                       .error_code = error.code.value_or("")};
  if (error.retry_after_s.has_value()) response.headers.emplace_back("Retry-After", absl::StrCat(*error.retry_after_s));
  if (error.http_code == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

// The header of a client may be longer, if its version is a later one.
std::string ValidTraceparent(const WebExchange& exchange) {
  const std::optional<TraceParent> parent = ParseTraceparent(exchange.traceparent());
  if (!parent.has_value()) return "";
  return Traceparent(
      {.trace_id = parent->trace_id, .span_id = parent->parent_id, .parent_id = "", .is_sampled = parent->is_sampled});
}

void RespondWith(const ApiError& error, WebExchange* exchange) {
  exchange->Respond(ResponseOf(error, exchange->request()));
}

const std::string& CallerOf(const GatewayOptions& options, const std::string& authorization,
                            const WebExchange& exchange) {
  return options.requires_tokens ? authorization : exchange.request().address;
}

void RespondWith(std::string body, const std::string& caller, AnswerMemory* memory, WebExchange* exchange) {
  const auto hold = memory->Begin(caller);
  if (!hold->Resize(body.size())) {
    return RespondWith(AnswerTooLarge(body.size(), memory->max_bytes(), /*may_stream=*/false), exchange);
  }
  exchange->Keep(hold);
  exchange->Respond({.body = std::move(body)});
}

void GenerateExchange::Start(GenerateCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                             const Environment& environment) {
  std::shared_ptr<GenerateExchange> self(
      new GenerateExchange(std::move(call), std::move(authorization), std::move(exchange), environment));
  const auto deadline =
      AnswerDeadline(self->exchange_->request(), self->call_.streams,
                     absl::ToChronoMilliseconds(self->options_->request_timeout), std::chrono::steady_clock::now());
  if (const ApiError* const error = std::get_if<ApiError>(&deadline)) return self->Fail(*error);
  self->deadline_ = std::get<std::chrono::steady_clock::time_point>(deadline);
  self->wait_.SetDeadline(self->deadline_);
  self->hold_ = self->link_->Hold(self->call_.num_bytes);
  if (self->hold_ == nullptr) return self->Fail(ManagerError(self->link_->BusyError()));
  self->exchange_->OnGone([self] { self->OnGone(); });
  self->exchange_->Keep(self->memory_);
  self->link_->GetModel(
      self->authorization_,
      [self](const google::rpc::Status& status, const v1::GetModelResponse& model) { self->OnModel(status, model); },
      self->wait_.MayWait());
}

GenerateExchange::GenerateExchange(GenerateCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                                   const Environment& environment)
    : call_(std::move(call)),
      authorization_(std::move(authorization)),
      exchange_(std::move(exchange)),
      options_(environment.options),
      link_(environment.link),
      server_(environment.server),
      bodies_(environment.bodies),
      memory_(environment.memory->Begin(CallerOf(*options_, authorization_, *exchange_))),
      wait_(absl::ToChronoMilliseconds(options_->manager_wait)) {}

void GenerateExchange::OnModel(const google::rpc::Status& status, const v1::GetModelResponse& model) {
  if (is_over_) return;
  if (status.code() != 0) return Fail(ManagerError(status));
  const auto name = NameForAnswer(call_.model, ModelNames(model, options_->served_names));
  if (const auto* const error = std::get_if<ApiError>(&name)) return Fail(*error);
  if (const std::optional<ApiError> error = BeyondContext(model)) return Fail(*error);
  const uint64_t num_logprobs = ExpectedLogprobs(call_, model.max_context_tokens());
  if (num_logprobs > options_->max_answer_logprobs) {
    return Fail(TooManyLogprobs(call_, num_logprobs, options_->max_answer_logprobs));
  }
  if (const size_t num_bytes = GenerateAnswer::BytesAtStart(call_); !memory_->Resize(num_bytes)) {
    return Fail(AnswerTooLarge(num_bytes, options_->max_answer_bytes, !call_.streams));
  }
  id_ = absl::StrCat(IdPrefix(call_), NewRequestId());
  exchange_->Describe({"gen_ai.operation.name", call_.is_chat ? "chat" : "text_completion"});
  exchange_->Describe({"gen_ai.provider.name", "quire"});
  exchange_->Describe({"gen_ai.request.model", call_.model.empty() ? std::get<std::string>(name) : call_.model});
  exchange_->Describe({"gen_ai.request.stream", call_.streams});
  exchange_->Describe({"gen_ai.response.id", id_});
  answer_ = NewAnswer(call_, {.id = id_, .created_unix_sec = std::time(nullptr), .model = std::get<std::string>(name)});
  AnswerSyntax syntax = SyntaxFor(model);
  if (call_.is_resumable && !syntax.is_plain()) {
    return Fail(FieldError("stream_options.resumable",
                           "is true, but the calls of tools or the thoughts of this model are taken out of its text; "
                           "such a stream cannot be resumed"));
  }
  if (!call_.forced_tools.empty() && syntax.tool_calls.format == ToolCallFormat::kNone) {
    return Fail(FieldError("tool_choice",
                           "needs a model whose calls of tools have a known format, and this one has none; "
                           "--tool-call-format of quire-openai can set it"));
  }
  if (ResumeIfAsked()) return;
  if (syntax.has_special_tags() && !call_.requests[0].has_skip_special_tokens()) {
    call_.requests[0].set_skip_special_tokens(false);
  }
  const bool needs_prompt = syntax.has_reasoning || !call_.has_max_tokens || call_.returns_token_ids;
  call_format_ = syntax.tool_calls.format;
  has_reasoning_ = syntax.has_reasoning;
  reasoning_ = syntax.reasoning;
  if (!syntax.is_plain()) answer_->SetSyntax(std::move(syntax));
  if (has_reasoning_) return PreparePrompt(needs_prompt, model);
  ForceCalls(Thoughts::kNone,
             [self = shared_from_this(), needs_prompt, model] { self->PreparePrompt(needs_prompt, model); });
}

void GenerateExchange::PreparePrompt(bool needs_prompt, const v1::GetModelResponse& model) {
  if (!call_.is_chat && call_.returns_token_ids) return FindPromptTokens(0);
  if (!call_.is_chat || !needs_prompt) return StartRequests();
  link_->RenderChat(
      authorization_, call_.requests[0].chat(),
      [self = shared_from_this(), model](const google::rpc::Status& end, const auto& prompt) {
        self->OnPrompt(end, prompt, model);
      },
      wait_.MayWait());
}

std::optional<ApiError> GenerateExchange::BeyondContext(const v1::GetModelResponse& model) const {
  const auto max = static_cast<int64_t>(model.max_context_tokens());
  for (size_t i = 0; i < call_.requests.size() && max > 0; ++i) {
    const int64_t num_tokens = call_.requests[i].token_ids().ids_size();
    if (num_tokens <= max) continue;
    ApiError error =
        FieldError(NamesOf(i).prompt, absl::StrCat("has ", num_tokens, " tokens, the model's context is ", max));
    error.code = "context_length_exceeded";
    return error;
  }
  return std::nullopt;
}

AnswerSyntax GenerateExchange::SyntaxFor(const v1::GetModelResponse& model) const {
  AnswerSyntax syntax;
  if (!call_.is_chat) return syntax;
  const auto choose = [](const std::string& flag, const std::string& guess) { return flag == "auto" ? guess : flag; };
  // A guide holds for the whole answer, so nothing of it is a thought, even if the prompt has ended with <think>.
  const ReasoningSyntax* const reasoning =
      ReasoningSyntaxOf(choose(options_->formats.reasoning, model.reasoning_format()));
  if (reasoning != nullptr && !call_.requests[0].has_guided()) {
    syntax.has_reasoning = true;
    syntax.reasoning = reasoning;
  }
  if (call_.may_call_tools) {
    syntax.tool_calls = {.format = ToolCallFormatOf(choose(options_->formats.tool_calls, model.tool_call_format())),
                         .tools = call_.tools,
                         .is_single = !call_.has_parallel_tool_calls || call_.names_tool,
                         .is_forced = !call_.forced_tools.empty(),
                         .parameters = call_.parameters};
    syntax.tool_calls.begins_in_call =
        syntax.tool_calls.is_forced && ForcedCallsBeginBehindTag(syntax.tool_calls.format);
  }
  return syntax;
}

void GenerateExchange::ForceCalls(Thoughts thoughts, std::function<void()> then) {
  const std::vector<CallableTool>& tools = call_.forced_tools.empty() ? call_.strict_tools : call_.forced_tools;
  if (call_format_ == ToolCallFormat::kNone || tools.empty()) return then();
  size_t num_bytes = 0;
  for (const CallableTool& tool : tools) num_bytes += tool.parameters.size();
  const auto error = std::make_shared<std::optional<ApiError>>();
  const auto grammar = std::make_shared<std::optional<std::string>>();
  bodies_->Make(
      exchange_->request().address, num_bytes * kGrammarCost,
      [self = shared_from_this(), &tools, thoughts, error, grammar] {
        const GenerateCall& call = self->call_;
        const bool is_single = !call.has_parallel_tool_calls || call.names_tool;
        *error = UnwritableName(self->call_format_, tools);
        if (error->has_value()) return;
        *grammar = call.forced_tools.empty()
                       ? StrictCallGrammar(self->call_format_, tools, is_single, thoughts, *self->reasoning_)
                       : ForcedCallGrammar(self->call_format_, tools, is_single, thoughts, *self->reasoning_);
      },
      [self = shared_from_this(), error, grammar, then = std::move(then)] {
        if (self->is_over_) return;
        // A strict tool that cannot be written is not guided.
        if (error->has_value() && !self->call_.forced_tools.empty()) return self->Fail(**error);
        if (grammar->has_value()) self->call_.requests[0].mutable_guided()->set_grammar(*std::move(*grammar));
        then();
      });
}

void GenerateExchange::OnPrompt(const google::rpc::Status& status, const v1::RenderChatResponse& prompt,
                                const v1::GetModelResponse& model) {
  if (is_over_) return;
  if (status.code() != 0) return Fail(ManagerError(status, call_.names));
  const Thoughts thoughts = ThoughtsAfter(prompt.text(), ContinuedContent(call_.requests[0].chat()), *reasoning_);
  answer_->SetBeginsInReasoning(thoughts == Thoughts::kBegun);
  if (call_.returns_token_ids) answer_->SetPromptTokens(0, {prompt.token_ids().begin(), prompt.token_ids().end()});
  if (!call_.has_max_tokens) LimitTokens(static_cast<uint32_t>(prompt.token_ids_size()), model);
  if (!has_reasoning_) return StartRequests();
  ForceCalls(thoughts, [self = shared_from_this()] { self->StartRequests(); });
}

void GenerateExchange::LimitTokens(uint32_t num_tokens, const v1::GetModelResponse& model) {
  const uint32_t context = model.max_context_tokens();
  // A conversation without room is refused by the manager, which says so.
  const uint32_t room =
      RoomForLogprobs(call_, num_tokens < context ? context - num_tokens : 1, options_->max_answer_logprobs);
  v1::StoppingParams* const stopping = call_.requests[0].mutable_stopping();
  if (stopping->has_max_tokens()) {
    call_.is_cut_to_context = room < stopping->max_tokens();
    stopping->set_max_tokens(std::min(room, stopping->max_tokens()));
  } else {
    stopping->set_max_tokens(model.has_default_max_tokens() ? std::min(model.default_max_tokens(), room) : room);
  }
}

void GenerateExchange::FindPromptTokens(size_t prompt) {
  for (; prompt < call_.requests.size(); ++prompt) {
    const v1::GenerateRequest& request = call_.requests[prompt];
    if (request.has_text()) break;
    const auto& ids = request.token_ids().ids();
    answer_->SetPromptTokens(prompt, {ids.begin(), ids.end()});
  }
  if (prompt == call_.requests.size()) return StartRequests();
  const v1::GenerateRequest& request = call_.requests[prompt];
  const auto text = std::make_shared<v1::TokenizeRequest>();
  text->set_text(request.text());
  if (request.has_add_special_tokens()) text->set_add_special_tokens(request.add_special_tokens());
  link_->Tokenize(
      authorization_, text,
      [self = shared_from_this(), prompt](const google::rpc::Status& status, const auto& tokens) {
        if (self->is_over_) return;
        if (status.code() != 0) return self->Fail(ManagerError(status, self->NamesOf(prompt)));
        self->answer_->SetPromptTokens(prompt, {tokens.token_ids().begin(), tokens.token_ids().end()});
        self->FindPromptTokens(prompt + 1);
      },
      wait_.MayWait());
}

void GenerateExchange::StartRequests() {
  parts_.resize(call_.requests.size(), {.ticket = {}, .position = {}, .policy = NewPolicy()});
  if (call_.rerank != nullptr) {
    for (size_t i = 0; i < kPairsAtOnce; ++i) StartNextPair();
    return;
  }
  for (size_t i = 0; i < call_.requests.size() && !is_over_; ++i) StartRequest(i);
  hold_ = nullptr;
}

void GenerateExchange::StartRequest(size_t prompt) {
  const bool outlives_manager = options_->resume_time > absl::ZeroDuration();
  std::optional<std::chrono::milliseconds> timeout;
  if (deadline_ != std::chrono::steady_clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    timeout = std::max(left, std::chrono::milliseconds(0));
  }
  v1::GenerateRequest& request = call_.requests[prompt];
  if (call_.is_resumable || outlives_manager) request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  request.set_request_id(prompt == 0 ? id_ : absl::StrCat(id_, "-", prompt));
  parts_[prompt].ticket = link_->Start(
      authorization_, std::move(request),
      [self = shared_from_this(), prompt](const auto& entry) { self->OnEntry(prompt, entry); }, hold_, timeout,
      wait_.MayWait(), ValidTraceparent(*exchange_));
}

void GenerateExchange::StartNextPair() {
  if (is_over_ || num_begun_pairs_ == call_.requests.size()) return;
  const size_t pair = num_begun_pairs_++;
  link_->Tokenize(
      authorization_, std::make_shared<const v1::TokenizeRequest>(call_.rerank->PairText(pair)),
      [self = shared_from_this(), pair](const google::rpc::Status& status, const auto& tokens) {
        if (self->is_over_) return;
        if (status.code() != 0) return self->Fail(ManagerError(status, self->NamesOf(pair)));
        *self->call_.requests[pair].mutable_token_ids() = self->call_.rerank->PromptOf(tokens);
        self->StartRequest(pair);
        if (++self->num_started_pairs_ == self->parts_.size()) self->hold_ = nullptr;
      },
      wait_.MayWait());
}

bool GenerateExchange::ResumeIfAsked() {
  const std::string& id = exchange_->request().last_event_id;
  if (id.empty()) return false;
  const std::optional<StreamPosition> position = StreamPosition::Parse(id, call_.is_chat);
  if (!call_.is_resumable) {
    Fail(FieldError("Last-Event-ID", "is set, but stream_options.resumable is not true"));
  } else if (!position.has_value()) {
    const char* const path = call_.is_chat ? "/v1/chat/completions" : "/v1/completions";
    Fail(FieldError("Last-Event-ID", absl::StrCat("is not the id of an event of ", path, " of this server")));
  } else {
    answer_->ResumeBehind(*position);
    parts_.push_back({.ticket = {}, .position = *position, .policy = NewPolicy()});
    parts_[0].policy.Note(/*index=*/0, /*has_token=*/true);
    ResumePart(0);
  }
  return true;
}

// The link looks for the manager that leads, and repeats calls while it does, so the policy is not told how long they
// last. No tokens are kept, so a request cannot be continued as another one.
CallPolicy GenerateExchange::NewPolicy() const {
  return CallPolicy(
      {.resume_time = options_->resume_time, .is_stream = true, .is_detachable = true, .is_ranked = true});
}

void GenerateExchange::ResumePart(size_t prompt) {
  if (is_over_) return;
  parts_[prompt].ticket =
      link_->Resume(authorization_, parts_[prompt].position.Resume(),
                    [self = shared_from_this(), prompt](const auto& entry) { self->OnEntry(prompt, entry); });
}

// The manager continues a request that can be resumed. If the client does not come back, the request ends. When it does
// come back, this call of the request ends by itself, because the other one takes the stream over.
void GenerateExchange::OnGone() {
  if (!call_.is_resumable || !has_begun_) return CancelAll();
  is_gone_ = true;
  server_->PostAfter(kComeBackTime, [self = shared_from_this()] { self->CancelAll(); });
}

void GenerateExchange::OnEntry(size_t prompt, const v1::GenerateBatchEntry& entry) {
  if (is_over_) return;
  if (entry.has_response()) {
    parts_[prompt].position.Note(entry.response());
    parts_[prompt].policy.Note(entry.response().index(), !entry.response().resume_token().empty());
    parts_[prompt].loss.reset();
    const std::string events = answer_->Add(prompt, entry.response());
    if (!HasRoomForAnswer()) return;
    if (call_.streams) Send(events);
  }
  if (is_over_ || !entry.has_end()) return;
  if (entry.end().code() != 0) {
    if (GoesOnAfter(prompt, entry.end())) return;
    // The first failure says more than the failures of the attempts to resume.
    return Fail(ManagerError(parts_[prompt].loss.value_or(entry.end()), NamesOf(prompt)));
  }
  if (++num_ended_ == parts_.size()) return Finish();
  if (call_.rerank != nullptr) StartNextPair();
}

bool GenerateExchange::HasRoomForAnswer() {
  if (answer_->num_logprobs() > options_->max_answer_logprobs) {
    Fail(TooManyLogprobs(call_, answer_->num_logprobs(), options_->max_answer_logprobs));
  } else if (!memory_->Resize(answer_->num_bytes())) {
    Fail(AnswerTooLarge(answer_->num_bytes(), options_->max_answer_bytes, !call_.streams));
  }
  return !is_over_;
}

ApiNames GenerateExchange::NamesOf(size_t prompt) const {
  ApiNames names = call_.names;
  if (call_.rerank != nullptr) {
    names.prompt = names.inputs[prompt];
  } else if (call_.requests.size() > 1) {
    absl::StrAppend(&names.prompt, "[", prompt, "]");
  }
  return names;
}

bool GenerateExchange::GoesOnAfter(size_t prompt, const google::rpc::Status& end) {
  Part& part = parts_[prompt];
  // The machine had other work, or the link was full. What the manager has kept comes as fast as it is read now.
  if (HasReason(end, "SLOW_READER") && part.policy.has_token() && !is_gone_ && !part.loss.has_value()) {
    part.loss = end;
    server_->Post([self = shared_from_this(), prompt] { self->ResumePart(prompt); });
    return true;
  }
  const CallAction action = part.policy.After(end, PolicyTime(std::chrono::steady_clock::now()));
  if (is_gone_ || action.kind != CallAction::Kind::kResume) return false;
  part.loss = action.error;
  server_->PostAfter(absl::ToChronoMilliseconds(action.delay),
                     [self = shared_from_this(), prompt] { self->ResumePart(prompt); });
  return true;
}

void GenerateExchange::Send(const std::string& events) {
  if (events.empty()) return;  // Until there is something to send, an error has its own HTTP code.
  if (!std::exchange(has_begun_, true)) exchange_->BeginEvents();
  exchange_->Send(events);
}

void GenerateExchange::Finish() {
  is_over_ = true;
  if (call_.rerank != nullptr) {
    const auto body = std::make_shared<std::string>();
    return bodies_->Make(
        exchange_->request().address, answer_->num_bytes(),
        [self = shared_from_this(), body] { *body = self->answer_->Body(); },
        [self = shared_from_this(), body] { self->RespondWithBody(std::move(*body)); });
  }
  if (!call_.streams) return RespondWithBody(answer_->Body());
  Send(answer_->LastEvents());
  exchange_->EndEvents();
}

void GenerateExchange::RespondWithBody(std::string body) {
  answer_ = nullptr;
  // JSON may need six bytes for a character.
  const size_t num_bytes = body.size();
  if (!memory_->Resize(num_bytes)) return Fail(AnswerTooLarge(num_bytes, options_->max_answer_bytes, !call_.streams));
  exchange_->Respond({.body = std::move(body)});
}

void GenerateExchange::Fail(const ApiError& error) {
  CancelAll();
  if (has_begun_) exchange_->Describe({"error.type", error.code.value_or(error.type)});
  if (!has_begun_) return RespondWith(error, exchange_.get());
  exchange_->Send(answer_->ErrorEvent(error, exchange_->request().id));
  exchange_->EndEvents();
}

void GenerateExchange::CancelAll() {
  is_over_ = true;
  wait_.End();
  memory_->Resize(0);
  call_.requests.clear();  // An answer of the manager may still be waited for, which keeps this object.
  hold_ = nullptr;
  for (const Part& part : parts_) link_->Cancel(part.ticket);
}

}  // namespace quire
