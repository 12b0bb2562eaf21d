// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_EMBED_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_EMBED_VALIDATION_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/inference_options.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"

namespace quire {

// Bytes of text that are tokenized. A token counts as four bytes.
size_t TextWork(const v1::EmbedRequest& request);

// Checks all but the inputs. INVALID_ARGUMENT with every wrong field, as a BadRequest; FAILED_PRECONDITION when the
// model gives no embeddings.
absl::Status ValidateEmbed(const v1::EmbedRequest& request, const ServedModel& model,
                           const InferenceServiceOptions& options);

// Makes the request for one input of a valid message. Errors as for the prompt in ValidateGenerate; they name the
// input.
absl::StatusOr<Request> MakeEmbedInput(const v1::EmbedRequest& request, int index, const ServedModel& model,
                                       const RequestLimits& limits);

// Fills the values of `embedding` with the first `num_values` ones, divided by their length (L2) if that is wanted and
// not 0. REQUIRES: there are as many.
void SetValues(absl::Span<const float> values, size_t num_values, bool normalizes, v1::Embedding* embedding);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_EMBED_VALIDATION_H_
