// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/embed_validation.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/unknown_fields.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

constexpr size_t kEmbeddingBytes = 32;  // Limit of the bytes of an embedding beside its values.

}  // namespace

size_t TextWork(const v1::EmbedRequest& request) {
  size_t num_bytes = 0;
  for (const v1::EmbedInput& input : request.inputs()) {
    num_bytes += input.text().size() + input.token_ids().ids_size() * sizeof(TokenId);
  }
  return num_bytes;
}

absl::Status ValidateEmbed(const v1::EmbedRequest& request, const ServedModel& model,
                           const InferenceServiceOptions& options) {
  const ModelPooling& pooling = model.pooling;
  if (pooling.kind == Pooling::kNone) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat("the model gives no embeddings: ", pooling.refusal)),
                      "NO_EMBEDDINGS");
  }
  FieldErrors errors;
  CheckUnknownFields(request, "", &errors);
  const auto num_inputs = static_cast<size_t>(request.inputs_size());
  size_t dimensions = static_cast<size_t>(pooling.embedding_size);
  if (request.has_dimensions()) {
    if (request.dimensions() < 1 || request.dimensions() > dimensions) {
      errors.Add("dimensions", absl::StrCat("is ", request.dimensions(), ", the embeddings of the model have ",
                                            dimensions, " values"));
    } else {
      dimensions = request.dimensions();
    }
  }
  if (num_inputs == 0) {
    errors.Add("inputs", "has no entry, at least one is needed");
  } else if (num_inputs > options.max_batch_requests) {
    errors.Add("inputs", absl::StrCat("has ", num_inputs, " entries, at most ", options.max_batch_requests,
                                      " are allowed (--max-batch-requests)"));
  } else if (const size_t num_bytes = num_inputs * (dimensions * sizeof(float) + kEmbeddingBytes);
             num_bytes > options.max_message_bytes) {
    errors.Add("inputs",
               absl::StrCat("has ", num_inputs, " entries, whose embeddings of ", dimensions, " values would have ",
                            num_bytes, " bytes, the limit is ", options.max_message_bytes, " (--max-message-bytes)"));
  }
  return errors.empty() ? absl::OkStatus() : errors.ToStatus();
}

absl::StatusOr<Request> MakeEmbedInput(const v1::EmbedRequest& request, int index, const ServedModel& model,
                                       const RequestLimits& limits) {
  const v1::EmbedInput& input = request.inputs(index);
  v1::GenerateRequest prompt;
  if (input.has_text()) prompt.set_text(input.text());
  if (input.has_token_ids()) *prompt.mutable_token_ids() = input.token_ids();
  if (input.input_case() == v1::EmbedInput::INPUT_NOT_SET) {
    FieldErrors errors;
    errors.Add(absl::StrCat("inputs[", index, "]"), "has neither text nor token_ids");
    return errors.ToStatus();
  }
  prompt.mutable_stopping()->set_max_tokens(0);
  if (request.has_add_special_tokens()) prompt.set_add_special_tokens(request.add_special_tokens());
  if (request.has_parse_special_tokens()) prompt.set_parse_special_tokens(request.parse_special_tokens());
  if (request.has_priority()) prompt.set_priority(request.priority());
  if (request.has_bypass_prefix_cache()) prompt.set_bypass_prefix_cache(request.bypass_prefix_cache());
  prompt.set_cache_salt(request.cache_salt());
  prompt.set_tenant(request.tenant());
  QUIRE_ASSIGN_OR_RETURN(ValidRequest valid,
                         ValidateGenerate(prompt, model, limits, /*drawn_seed=*/0, /*user=*/{},
                                          /*guides=*/nullptr, absl::StrCat("inputs[", index, "].")));
  Request made = std::move(valid.request);
  made.generation = model.generation;
  made.sampling = {};
  made.sampling.pooling = model.pooling.kind;
  made.stop_token_ids.clear();
  return made;
}

void SetValues(absl::Span<const float> values, size_t num_values, bool normalizes, v1::Embedding* embedding) {
  const absl::Span<const float> first = values.first(num_values);
  double squares = 0;
  for (const float value : first) squares += double{value} * value;
  const double length = normalizes && squares > 0 ? std::sqrt(squares) : 1;
  embedding->mutable_values()->Reserve(static_cast<int>(num_values));
  for (const float value : first) embedding->add_values(static_cast<float>(value / length));
}

}  // namespace quire
