#include "kv_manager/inference_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/rpc_status.h"

namespace quire {
namespace {

// Tokenizing this much takes a millisecond or two, which gRPC's threads can spare.
constexpr size_t kShortTextBytes = 16 << 10;

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status, context));
  return reactor;
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelOf(const Engine& engine) {
  std::shared_ptr<const ServedModel> model = engine.model();
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  return model;
}

}  // namespace

InferenceServiceImpl::InferenceServiceImpl(Engine* engine, const InferenceServiceOptions& options, const Clock* clock)
    : options_(options),
      registry_(options.max_requests),
      environment_{engine, &registry_,     &output_threads_,          &random_,
                   clock,  options.limits, options.max_outbox_tokens, options.last_write_timeout},
      output_threads_(options.num_output_threads),
      input_threads_(options.num_input_threads) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceServiceImpl::Generate(grpc::CallbackServerContext* context,
                                                                               const v1::GenerateRequest* request) {
  const std::shared_ptr<GenerateCall> call = GenerateCall::New(&environment_, context, request);
  const absl::Status status = RunOnText(TextWork(*request), [call] { call->Start(); });
  if (!status.ok()) call->Refuse(status);
  return call.get();
}

grpc::ServerUnaryReactor* InferenceServiceImpl::Tokenize(grpc::CallbackServerContext* context,
                                                         const v1::TokenizeRequest* request,
                                                         v1::TokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status = RunOnText(
      request->text().size(), [=, this] { reactor->Finish(ToGrpcStatus(DoTokenize(*request, response), context)); });
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status, context));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceServiceImpl::Detokenize(grpc::CallbackServerContext* context,
                                                           const v1::DetokenizeRequest* request,
                                                           v1::DetokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const size_t num_bytes = request->token_ids_size() * sizeof(TokenId);
  const absl::Status status =
      RunOnText(num_bytes, [=, this] { reactor->Finish(ToGrpcStatus(DoDetokenize(*request, response), context)); });
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status, context));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceServiceImpl::GetModel(grpc::CallbackServerContext* context,
                                                         const v1::GetModelRequest* /*request*/,
                                                         v1::GetModelResponse* response) {
  return Finished(context, DoGetModel(response));
}

grpc::ServerUnaryReactor* InferenceServiceImpl::Abort(grpc::CallbackServerContext* context,
                                                      const v1::AbortRequest* request,
                                                      v1::AbortResponse* /*response*/) {
  return Finished(context, DoAbort(*request));
}

absl::Status InferenceServiceImpl::RunOnText(size_t num_bytes, std::function<void()> job) {
  if (num_bytes <= kShortTextBytes) {
    job();
    return absl::OkStatus();
  }
  if (input_threads_.TrySchedule(std::move(job), options_.max_waiting_texts)) return absl::OkStatus();
  return WithRetryDelay(
      WithReason(absl::ResourceExhaustedError(
                     absl::StrCat(options_.max_waiting_texts, " long texts wait to be tokenized, the limit")),
                 "TOO_MANY_LONG_TEXTS", {{"max_waiting_texts", absl::StrCat(options_.max_waiting_texts)}}),
      /*delay_ms=*/500);
}

absl::Status InferenceServiceImpl::DoTokenize(const v1::TokenizeRequest& request,
                                              v1::TokenizeResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_.engine));
  QUIRE_RETURN_IF_ERROR(ValidateTokenize(request, *model, options_.limits));
  EncodeOptions encode_options;
  if (request.has_add_special_tokens()) encode_options.add_special_tokens = request.add_special_tokens();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, model->tokenizer->Encode(request.text(), encode_options));
  for (TokenId token : tokens) {
    response->add_token_ids(token);
    const auto piece = model->tokenizer->TokenPiece(token);
    response->add_pieces(piece.ok() ? std::string(*piece) : std::string());
  }
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::DoDetokenize(const v1::DetokenizeRequest& request,
                                                v1::DetokenizeResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_.engine));
  QUIRE_RETURN_IF_ERROR(ValidateDetokenize(request, *model));
  const std::vector<TokenId> tokens(request.token_ids().begin(), request.token_ids().end());
  const bool skip_special_tokens = request.has_skip_special_tokens() ? request.skip_special_tokens() : true;
  response->set_text(model->tokenizer->Decode(tokens, skip_special_tokens));
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::DoGetModel(v1::GetModelResponse* response) const {
  QUIRE_ASSIGN_OR_RETURN(const auto model, ModelOf(*environment_.engine));
  response->set_name(model->name);
  response->set_architecture(model->architecture);
  response->set_vocab_size(model->vocab_size);
  response->set_max_context_tokens(model->max_context_tokens);
  response->mutable_eos_token_ids()->Add(model->eos_token_ids.begin(), model->eos_token_ids.end());
  if (model->bos_token_id.has_value()) response->set_bos_token_id(*model->bos_token_id);
  response->set_has_tokenizer(model->tokenizer != nullptr);
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::DoAbort(const v1::AbortRequest& request) const {
  const std::shared_ptr<TokenStream> stream = registry_.Find(request.request_id());
  if (stream != nullptr && stream->Abort()) return absl::OkStatus();
  return WithReason(
      absl::NotFoundError(absl::StrCat("request_id: no request ", Quoted(request.request_id()), " is running")),
      "REQUEST_NOT_RUNNING");
}

}  // namespace quire
