// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/embed_exchange.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gateway/openai/model_list.h"
#include "gateway/process/answer_deadline.h"
#include "gateway/process/generate_exchange.h"
#include "gateway/process/manager_error.h"

namespace quire {
namespace {

// Limit of the bytes of an embedding beside its values, in a message of the manager.
constexpr size_t kEmbeddingBytes = 32;
// Limits of the texts of one call, so that its answer and its texts stay far below the limit of messages.
constexpr size_t kMaxInputsPerCall = 512;
constexpr size_t kPartOfMessage = 4;

ApiError EmbeddingsTooLarge(size_t num_bytes, size_t max_bytes) {
  const bool is_lasting = num_bytes > max_bytes / 2;
  ApiError error{.http_code = is_lasting ? 400 : 429,
                 .message = absl::StrCat("the embeddings and the answer may take ", num_bytes, " bytes, and "),
                 .type = is_lasting ? "invalid_request_error" : "rate_limit_error",
                 .code = is_lasting ? "answer_too_large" : "answer_memory_full"};
  if (is_lasting) {
    absl::StrAppend(&error.message, "one caller may have at most ", max_bytes / 2,
                    ", half of --max-answer-bytes; send fewer texts, or ask for base64 or fewer dimensions");
  } else {
    absl::StrAppend(&error.message, "all answers together may take ", max_bytes,
                    " (--max-answer-bytes), of which the others leave this caller too little; try again");
    error.retry_after_s = 1;
  }
  return error;
}

}  // namespace

void EmbedExchange::Start(EmbedCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                          const Environment& environment) {
  const std::shared_ptr<EmbedExchange> self(
      new EmbedExchange(std::move(call), std::move(authorization), std::move(exchange), environment));
  const auto deadline =
      AnswerDeadline(self->exchange_->request(), /*streams=*/false,
                     absl::ToChronoMilliseconds(self->options_->request_timeout), std::chrono::steady_clock::now());
  if (const ApiError* const error = std::get_if<ApiError>(&deadline)) return self->Fail(*error);
  self->deadline_ = std::get<std::chrono::steady_clock::time_point>(deadline);
  self->wait_.SetDeadline(self->deadline_);
  if (self->hold_ == nullptr) return self->Fail(ManagerError(self->link_->BusyError()));
  self->exchange_->OnGone([self] { self->OnGone(); });
  self->link_->GetModel(
      self->authorization_,
      [self](const google::rpc::Status& status, const v1::GetModelResponse& model) { self->OnModel(status, model); },
      self->wait_.MayWait());
}

EmbedExchange::EmbedExchange(EmbedCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                             const Environment& environment)
    : call_(std::move(call)),
      authorization_(std::move(authorization)),
      exchange_(std::move(exchange)),
      options_(environment.options),
      link_(environment.link),
      bodies_(environment.bodies),
      memory_(environment.memory->Begin(CallerOf(*options_, authorization_, *exchange_))),
      hold_(link_->Hold(call_.num_bytes)),
      wait_(absl::ToChronoMilliseconds(options_->manager_wait)) {}

void EmbedExchange::OnModel(const google::rpc::Status& status, const v1::GetModelResponse& model) {
  if (is_over_) return;
  if (status.code() != 0) return Fail(ManagerError(status));
  const auto name = NameForAnswer(call_.model, ModelNames(model, options_->served_names));
  if (const auto* const error = std::get_if<ApiError>(&name)) return Fail(*error);
  // A model without embeddings: the manager says why there are none. Values beyond those of the model: it says so.
  const size_t size = model.pooling().embedding_size();
  if (size > 0 && call_.common.dimensions() <= size) {
    answer_bytes_ = call_.AnswerBytes(size);
    if (!memory_->Resize(answer_bytes_)) return Fail(EmbeddingsTooLarge(answer_bytes_, options_->max_answer_bytes));
  }
  exchange_->Describe({"gen_ai.operation.name", "embeddings"});
  exchange_->Describe({"gen_ai.provider.name", "quire"});
  exchange_->Describe({"gen_ai.request.model", call_.model.empty() ? std::get<std::string>(name) : call_.model});
  answer_.id = exchange_->request().id;
  answer_.model = std::get<std::string>(name);
  answer_.created_unix_sec = std::time(nullptr);
  const size_t message_bytes = model.max_message_bytes() / kPartOfMessage;
  const size_t most = std::max<size_t>(1, message_bytes / (size * sizeof(float) + kEmbeddingBytes));
  max_inputs_per_call_ = std::min({kMaxInputsPerCall, most, std::max<size_t>(1, model.max_batch_requests())});
  SendNext();
}

void EmbedExchange::SendNext() {
  if (next_ == call_.inputs.size()) return Answer();
  const auto request = std::make_shared<v1::EmbedRequest>(call_.common);
  // A longer text goes alone, and the manager says when it is too long.
  constexpr size_t kMaxBytesPerCall = 1 << 20;
  size_t num_bytes = 0;
  size_t end = next_;
  while (end < call_.inputs.size() && end - next_ < max_inputs_per_call_) {
    num_bytes += call_.inputs[end].ByteSizeLong();
    if (end > next_ && num_bytes > kMaxBytesPerCall) break;
    *request->add_inputs() = call_.inputs[end++];
  }
  const size_t num_inputs = end - next_;
  ticket_ = link_->Embed(
      authorization_, request, deadline_,
      [self = shared_from_this(), num_inputs](const google::rpc::Status& status, const v1::EmbedResponse& response) {
        self->OnResponse(num_inputs, status, response);
      },
      wait_.MayWait(), ValidTraceparent(*exchange_));
}

void EmbedExchange::OnResponse(size_t num_inputs, const google::rpc::Status& status,
                               const v1::EmbedResponse& response) {
  if (is_over_) return;
  if (status.code() != 0) {
    ApiNames names;
    const auto first = call_.input_names.begin() + static_cast<ptrdiff_t>(next_);
    names.inputs.assign(first, first + static_cast<ptrdiff_t>(num_inputs));
    return Fail(ManagerError(status, names));
  }
  if (static_cast<size_t>(response.embeddings_size()) != num_inputs) {
    return Fail({.http_code = 500,
                 .message = "the manager has answered with another number of embeddings",
                 .type = "server_error"});
  }
  responses_.push_back(std::make_shared<const v1::EmbedResponse>(response));
  for (const v1::Embedding& embedding : responses_.back()->embeddings()) answer_.embeddings.push_back(&embedding);
  next_ += num_inputs;
  SendNext();
}

void EmbedExchange::Answer() {
  const auto body = std::make_shared<std::string>();
  bodies_->Make(
      exchange_->request().address, answer_bytes_,
      [self = shared_from_this(), body] { *body = self->call_.body(self->answer_); },
      [self = shared_from_this(), body] {
        if (!self->End()) return;
        // The embeddings and the body were counted, and now there is the body alone.
        self->memory_->Resize(body->size());
        self->exchange_->Keep(self->memory_);
        self->exchange_->Respond({.body = std::move(*body)});
      });
}

void EmbedExchange::OnGone() {
  if (End()) link_->Cancel(ticket_);
}

void EmbedExchange::Fail(const ApiError& error) {
  if (End()) RespondWith(error, exchange_.get());
}

bool EmbedExchange::End() {
  wait_.End();
  return !std::exchange(is_over_, true);
}

}  // namespace quire
