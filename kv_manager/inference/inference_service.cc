// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/inference_service.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/message_numbers.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/inference/call_metadata.h"
#include "kv_manager/inference/generate_batch_call.h"
#include "kv_manager/inference/stream_call.h"
#include "kv_manager/requests/chat_prompt.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/embed_run.h"
#include "kv_manager/requests/embed_validation.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/requests/token_stream.h"
#include "kv_manager/rpc/message_bytes.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.grpc.pb.h"
#include "security/authorizer.h"

namespace quire {
namespace {

template <typename Request>
size_t NoWork(const Request& /*request*/) {
  return 0;
}

size_t TokenizeWork(const v1::TokenizeRequest& request) {
  return request.text().size();
}

size_t RenderChatWork(const v1::RenderChatRequest& request) {
  return TextWork(request.chat());
}

// A token takes less time than a byte of text.
size_t DetokenizeWork(const v1::DetokenizeRequest& request) {
  return request.token_ids_size();
}

void EncodeDefaults(const SamplingDefaults& defaults, v1::GetModelResponse* out) {
  if (defaults.max_tokens.has_value()) out->set_default_max_tokens(static_cast<uint32_t>(*defaults.max_tokens));
  for (const auto& [name, value] : defaults.sampling) SetNumber(name.c_str(), value, out->mutable_default_sampling());
}

v1::ModelPooling EncodePooling(const ModelPooling& in) {
  v1::ModelPooling out;
  if (in.kind == Pooling::kNone) {
    out.set_refusal(in.refusal);
    return out;
  }
  out.set_kind(static_cast<v1::PoolingKind>(in.kind));
  out.set_normalizes(in.normalizes);
  out.set_embedding_size(static_cast<uint32_t>(in.embedding_size));
  return out;
}

absl::Status ResponseTooLarge(size_t num_bytes, size_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the response has ", num_bytes, " bytes or more, the limit is ", limit,
                                                " (--max-message-bytes)")),
      "RESPONSE_TOO_LARGE", {{"max_message_bytes", absl::StrCat(limit)}});
}

// It is for the responses with tokens and their pieces. As objects these take many times the bytes of the message, so a
// response that is too large is not made. RESOURCE_EXHAUSTED then.
template <typename Response>
absl::Status AddTokens(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, size_t max_bytes,
                       Response* response) {
  size_t num_bytes = 0;
  for (const TokenId token : tokens) {
    const auto piece = tokenizer.TokenPiece(token);
    num_bytes += 1 + 2 + (piece.ok() ? piece->size() : 0);  // The least: a number, and the head of a string.
  }
  if (num_bytes > max_bytes) return ResponseTooLarge(num_bytes, max_bytes);
  for (const TokenId token : tokens) {
    response->add_token_ids(token);
    const auto piece = tokenizer.TokenPiece(token);
    response->add_pieces(piece.ok() ? std::string(*piece) : std::string());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelOf(const Engine& engine) {
  std::shared_ptr<const ServedModel> model = engine.model();
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  return model;
}

}  // namespace

InferenceServiceImpl::InferenceServiceImpl(RequestEnvironment* environment)
    : ReceivingService(v1::InferenceService::service_full_name(), &environment->receiving, &environment->answers),
      environment_(environment) {
  for (const auto& [name, method] : {std::pair("Generate", RpcMethod::kGenerate), {"Resume", RpcMethod::kResume}}) {
    AddStream(name, [environment, method = method](grpc::CallbackServerContext* context) {
      return StreamCall::New(environment, method, context);
    });
  }
  AddStream("GenerateBatch", [environment](grpc::CallbackServerContext* context) {
    return GenerateBatchCall::New(environment, context);
  });
  AddEmbed();
  AddAnswer("Tokenize", RpcMethod::kTokenize, TokenizeWork, &InferenceServiceImpl::DoTokenize);
  AddAnswer("Detokenize", RpcMethod::kDetokenize, DetokenizeWork, &InferenceServiceImpl::DoDetokenize);
  AddAnswer("RenderChat", RpcMethod::kRenderChat, RenderChatWork, &InferenceServiceImpl::DoRenderChat);
  AddAnswer("GetModel", RpcMethod::kGetModel, NoWork<v1::GetModelRequest>, &InferenceServiceImpl::DoGetModel);
  AddAnswer("Abort", RpcMethod::kAbort, NoWork<v1::AbortRequest>, &InferenceServiceImpl::DoAbort);
}

// The call keeps the run until its client has read the answer.
void InferenceServiceImpl::AddEmbed() {
  AddUnary("Embed", [this](UnaryCall* call, const absl::Status& received, const grpc::ByteBuffer& bytes) {
    const auto end = [this, call](const absl::Status& status, const v1::EmbedResponse& response) {
      environment_->counts.Count(RpcMethod::kEmbed, status.code());
      status.ok() ? call->FinishWith(response) : call->FinishWithError(status);
    };
    const auto refuse = [end](const absl::Status& status) { end(status, {}); };
    if (!received.ok()) return refuse(received);
    const absl::StatusOr<std::optional<Caller>> caller = CallerOf(*call->context(), environment_->options.tokens.get());
    if (!caller.ok()) return refuse(caller.status());
    const std::string owner = OwnerOf(*caller);
    const absl::Status status = environment_->text_threads.RunParse(owner, bytes.Length(), [=, this, caller = *caller] {
      v1::EmbedRequest request;
      if (const absl::Status parsed = FromBytes(bytes, &request); !parsed.ok()) return refuse(parsed);
      const size_t work = TextWork(request);
      const auto run =
          std::make_shared<EmbedRun>(environment_, caller, TraceParentOf(*call->context()), std::move(request),
                                     DeadlineMicros(*call->context(), *environment_->clock), end);
      call->SetOnCancel([run] { run->Leave(); });
      // A very long message has been waited for, and counted, already.
      if (bytes.Length() >= kVeryLongTextBytes) return run->Start();
      const absl::Status started = environment_->text_threads.RunInput(owner, work, [run] { run->Start(); });
      if (!started.ok()) refuse(started);
    });
    if (!status.ok()) refuse(status);
  });
}

template <typename Request, typename Response>
void InferenceServiceImpl::AddAnswer(const char* name, RpcMethod method, size_t (*num_bytes)(const Request&),
                                     absl::Status (InferenceServiceImpl::*handle)(const Asker&, const Request&,
                                                                                  Response*) const) {
  AddUnary(name, [=, this](UnaryCall* call, const absl::Status& received, const grpc::ByteBuffer& bytes) {
    const auto refuse = [=, this](const absl::Status& status) {
      environment_->counts.Count(method, status.code());
      call->FinishWithError(status);
    };
    if (!received.ok()) return refuse(received);
    const absl::StatusOr<std::optional<Caller>> caller = CallerOf(*call->context(), environment_->options.tokens.get());
    if (!caller.ok()) return refuse(caller.status());
    const std::string owner = OwnerOf(*caller);
    const Asker asker{*caller, [context = call->context()] { return context->IsCancelled(); }};
    const auto answer = [=, this](const Request& request) {
      if (asker.has_left()) return refuse(absl::CancelledError("the client has ended the call"));
      Response response;
      if (const absl::Status handled = (this->*handle)(asker, request, &response); !handled.ok()) {
        return refuse(handled);
      }
      const size_t limit = environment_->options.max_message_bytes;
      if (const size_t size = response.ByteSizeLong(); size > limit) return refuse(ResponseTooLarge(size, limit));
      environment_->counts.Count(method, absl::StatusCode::kOk);
      call->FinishWith(response);
    };
    const absl::Status status = environment_->text_threads.RunParse(owner, bytes.Length(), [=, this] {
      const auto request = std::make_shared<Request>();
      if (const absl::Status parsed = FromBytes(bytes, request.get()); !parsed.ok()) return refuse(parsed);
      // A very long message has been waited for, and counted, already.
      if (bytes.Length() >= kVeryLongTextBytes) return answer(*request);
      const absl::Status started =
          environment_->text_threads.RunInput(owner, num_bytes(*request), [=] { answer(*request); });
      if (!started.ok()) refuse(started);
    });
    if (!status.ok()) refuse(status);
  });
}

absl::Status InferenceServiceImpl::DoTokenize(const Asker& asker, const v1::TokenizeRequest& request,
                                              v1::TokenizeResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_->engine));
  QUIRE_RETURN_IF_ERROR(ValidateTokenize(request, *model, environment_->options.limits));
  EncodeOptions options = EncodeOptionsOf(request);
  options.has_left = &asker.has_left;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, model->tokenizer->Encode(request.text(), options));
  return AddTokens(*model->tokenizer, tokens, environment_->options.max_message_bytes, response);
}

absl::Status InferenceServiceImpl::DoRenderChat(const Asker& asker, const v1::RenderChatRequest& request,
                                                v1::RenderChatResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_->engine));
  QUIRE_ASSIGN_OR_RETURN(jinja::Text text, ValidateRenderChat(request, *model, environment_->options.limits));
  const EncodeOptions options{.add_special_tokens = false, .user_ranges = text.user, .has_left = &asker.has_left};
  const absl::StatusOr<std::vector<TokenId>> tokens = model->tokenizer->Encode(text.bytes, options);
  if (absl::IsCancelled(tokens.status())) return tokens.status();
  if (!tokens.ok()) {
    FieldErrors errors;
    errors.Add("chat", std::string(tokens.status().message()));
    return errors.ToStatus();
  }
  QUIRE_RETURN_IF_ERROR(AddTokens(*model->tokenizer, *tokens, environment_->options.max_message_bytes, response));
  for (const ByteRange& range : text.user) {
    v1::TextRange* const added = response->add_user_ranges();
    added->set_begin(static_cast<uint32_t>(range.begin));
    added->set_end(static_cast<uint32_t>(range.end));
  }
  response->set_text(std::move(text.bytes));
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::DoDetokenize(const Asker& /*asker*/, const v1::DetokenizeRequest& request,
                                                v1::DetokenizeResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_->engine));
  QUIRE_RETURN_IF_ERROR(ValidateDetokenize(request, *model));
  const std::vector<TokenId> tokens(request.token_ids().begin(), request.token_ids().end());
  const bool skip_special_tokens = request.has_skip_special_tokens() ? request.skip_special_tokens() : true;
  const size_t max_bytes = environment_->options.max_message_bytes;
  response->set_text(model->tokenizer->Decode(tokens, skip_special_tokens, max_bytes));
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::DoGetModel(const Asker& /*asker*/, const v1::GetModelRequest& /*request*/,
                                              v1::GetModelResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_->engine));
  response->set_name(model->name);
  response->set_architecture(model->architecture);
  response->set_vocab_size(model->vocab_size);
  const int64_t longest = environment_->engine->LongestSequence(model->generation);
  response->set_max_context_tokens(static_cast<uint32_t>(
      longest > 0 ? std::min<int64_t>(longest, model->max_context_tokens) : model->max_context_tokens));
  response->mutable_eos_token_ids()->Add(model->eos_token_ids.begin(), model->eos_token_ids.end());
  if (model->bos_token_id.has_value()) response->set_bos_token_id(*model->bos_token_id);
  response->set_has_tokenizer(model->tokenizer != nullptr);
  const bool has_template = model->chat_template.ok() && *model->chat_template != nullptr;
  response->set_has_chat_template(has_template && model->tokenizer != nullptr);
  if (response->has_chat_template()) {
    response->set_tool_call_format((*model->chat_template)->answer_format().tool_calls);
    response->set_reasoning_format((*model->chat_template)->answer_format().reasoning);
  }
  response->set_numerics_fingerprint(model->numerics_fingerprint);
  response->set_max_message_bytes(static_cast<uint32_t>(environment_->options.max_message_bytes));
  response->set_max_batch_requests(static_cast<uint32_t>(environment_->options.max_batch_requests));
  *response->mutable_pooling() = EncodePooling(model->pooling);
  response->set_embeds_only(model->embeds_only);
  if (environment_->options.limits.uses_model_defaults) EncodeDefaults(model->defaults, response);
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::DoAbort(const Asker& asker, const v1::AbortRequest& request,
                                           v1::AbortResponse* /*response*/) const {
  const bool may_come = environment_->is_restoring();
  const absl::StatusOr<std::shared_ptr<TokenStream>> stream =
      environment_->registry.Find(asker.caller, request.request_id());
  if (stream.ok() && (*stream)->Abort()) return absl::OkStatus();
  if (!stream.ok() && !absl::IsNotFound(stream.status())) return stream.status();
  if (may_come && !stream.ok()) return RestoringError();
  return WithReason(
      absl::NotFoundError(absl::StrCat("request_id: no request ", Quoted(request.request_id()), " is running")),
      "REQUEST_NOT_RUNNING");
}

}  // namespace quire
