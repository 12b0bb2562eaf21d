// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_MODEL_LIST_H_
#define QUIRE_GATEWAY_OPENAI_MODEL_LIST_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/api_error.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// The model as /v1/models/NAME shows it, and the list of /v1/models, which has this model only.
std::string ModelObject(const v1::GetModelResponse& model, int64_t created_unix_sec);
std::string ModelList(const v1::GetModelResponse& model, int64_t created_unix_sec);

// Returns the name of a model from its place in a URL, where a client may write / as %2F. What is no such escape stays.
std::string ModelNameOfUrl(absl::string_view text);

// The error for a request that names another model than the one that is served.
ApiError NoSuchModel(const std::string& asked, const std::string& served);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_MODEL_LIST_H_
