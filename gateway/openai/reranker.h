// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_RERANKER_H_
#define QUIRE_GATEWAY_OPENAI_RERANKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/embed_call.h"
#include "gateway/openai/generate_call.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// A model that answers "yes" or "no" to the question whether a document fits a query, as Qwen3-Reranker does. Its
// prompt is kRerankerPrefix, RerankerPair and kRerankerSuffix, which are tokenized one by one, as on its model card.
// Only the first and the last one have special tokens.
struct Reranker {
  std::vector<uint32_t> prefix;  // Tokens of kRerankerPrefix.
  std::vector<uint32_t> suffix;  // Tokens of kRerankerSuffix.
  uint32_t yes = 0;
  uint32_t no = 0;
};

inline constexpr absl::string_view kRerankerPrefix =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
inline constexpr absl::string_view kRerankerSuffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
inline constexpr absl::string_view kRerankerInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

std::string RerankerPair(absl::string_view instruction, absl::string_view query, absl::string_view document);

// The pairs of a request to /v1/rerank or /v1/score, and who scores them.
struct RerankSettings {
  EmbedCall call;
  std::shared_ptr<const Reranker> reranker;

  // Returns what to tokenize for a pair.
  v1::TokenizeRequest PairText(size_t pair) const;
  // Returns the prompt of a pair with these tokens.
  v1::TokenIds PromptOf(const v1::TokenizeResponse& pair) const;
};

// Returns a call with a request for each pair, whose prompts are not set yet. A request searches for the two likeliest
// outputs of one token among "yes" and "no", so that it gets the logprobs of both.
GenerateCall RerankCall(EmbedCall call, std::shared_ptr<const Reranker> reranker);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_RERANKER_H_
