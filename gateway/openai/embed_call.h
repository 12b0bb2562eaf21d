// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_EMBED_CALL_H_
#define QUIRE_GATEWAY_OPENAI_EMBED_CALL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_text.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Limit of the texts of one request, which is that of OpenAI.
inline constexpr size_t kMaxEmbedInputs = 2048;

// What the answer of such a request is made of.
struct EmbedAnswer {
  std::string id;  // Of the request.
  std::string model;
  int64_t created_unix_sec = 0;
  std::vector<const v1::Embedding*> embeddings = {};  // [num_inputs], in the order of EmbedCall::inputs.
  // Without embeddings: what a reranker has made of the pairs. [num_pairs], in the order of EmbedCall::pairs.
  std::vector<double> scores = {};
  int64_t num_tokens = 0;  // Of all its prompts.
};

// A request to /v1/embeddings, /v1/rerank or /v1/score, translated to messages of quire.v1.
struct EmbedCall {
  std::string model = {};        // It is empty if the client names none.
  v1::EmbedRequest common = {};  // Has no inputs.
  std::vector<v1::EmbedInput> inputs = {};
  std::vector<std::string> input_names = {};  // The client's field of each input.
  // Indices into `inputs` of the texts that are compared. Empty: the request asks for embeddings.
  std::vector<std::pair<size_t, size_t>> pairs = {};
  std::optional<std::string> instruction = std::nullopt;  // What a reranker is to look for.
  size_t num_bytes = 0;                                   // The size of the inputs.
  size_t value_bytes = 0;                                 // Limit of the bytes of a value in the answer.
  size_t other_bytes = 0;                                 // Limit of the other bytes of the answer.
  // Makes the body of the answer, in any thread.
  std::function<std::string(const EmbedAnswer& answer)> body = nullptr;
  IgnoredFields ignored = {};

  // Limit of the memory that the answer takes, for embeddings with so many values.
  size_t AnswerBytes(size_t embedding_size) const {
    const size_t values = common.has_dimensions() ? common.dimensions() : embedding_size;
    return inputs.size() * values * (sizeof(float) + value_bytes) + other_bytes;
  }
};

// These functions translate the body of a request. They check every type, and refuse what is not supported by its name.
// The manager checks the tokens and the ranges of values.

// OpenAI's request for embeddings.
std::variant<EmbedCall, ApiError> ReadEmbeddingsCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);
// Orders documents by how near they are to a query, with the fields of Jina and Cohere. The score is that of a
// reranker, or the cosine of the two embeddings.
std::variant<EmbedCall, ApiError> ReadRerankCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);
// The scores of pairs of texts, with the fields of vLLM. A score is as above.
std::variant<EmbedCall, ApiError> ReadScoreCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_EMBED_CALL_H_
