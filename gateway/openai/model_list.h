// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_MODEL_LIST_H_
#define QUIRE_GATEWAY_OPENAI_MODEL_LIST_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/api_error.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Returns the names under which clients know the model: `served` (--served-model-name), or else the name that it has at
// the manager. There is at least one.
std::vector<std::string> ModelNames(const v1::GetModelResponse& model, const std::vector<std::string>& served);

// Returns the name for the answer to a request that asks for this model: the same name, or the first one if it is
// empty. The error says which names there are.
std::variant<std::string, ApiError> NameForAnswer(const std::string& asked, const std::vector<std::string>& names);

// The model under one of its names, as /v1/models/NAME shows it, and the list of /v1/models, which has an entry for
// each of its names.
std::string ModelObject(const std::string& name, const v1::GetModelResponse& model, int64_t created_unix_sec);
std::string ModelList(const std::vector<std::string>& names, const v1::GetModelResponse& model,
                      int64_t created_unix_sec);

// Returns the name of a model from its place in a URL, where a client may write / as %2F. What is no such escape stays.
std::string ModelNameOfUrl(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_MODEL_LIST_H_
