// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/reranker.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {

std::string RerankerPair(absl::string_view instruction, absl::string_view query, absl::string_view document) {
  return absl::StrCat("<Instruct>: ", instruction, "\n<Query>: ", query, "\n<Document>: ", document);
}

v1::TokenizeRequest RerankSettings::PairText(size_t pair) const {
  const auto& [query, document] = call.pairs[pair];
  v1::TokenizeRequest request;
  request.set_text(
      RerankerPair(call.instruction.has_value() ? absl::string_view(*call.instruction) : kRerankerInstruction,
                   call.inputs[query].text(), call.inputs[document].text()));
  request.set_add_special_tokens(false);
  request.set_parse_special_tokens(false);  // Nobody can forge the end of a document.
  return request;
}

v1::TokenIds RerankSettings::PromptOf(const v1::TokenizeResponse& pair) const {
  v1::TokenIds prompt;
  auto* const ids = prompt.mutable_ids();
  ids->Add(reranker->prefix.begin(), reranker->prefix.end());
  ids->Add(pair.token_ids().begin(), pair.token_ids().end());
  ids->Add(reranker->suffix.begin(), reranker->suffix.end());
  return prompt;
}

GenerateCall RerankCall(EmbedCall call, std::shared_ptr<const Reranker> reranker) {
  v1::GenerateRequest request;
  request.mutable_sampling()->add_allowed_token_ids(reranker->yes);
  request.mutable_sampling()->add_allowed_token_ids(reranker->no);
  request.mutable_beam()->set_width(2);
  request.mutable_beam()->set_num_return_sequences(2);
  request.mutable_stopping()->set_max_tokens(1);
  request.mutable_stopping()->set_ignore_eos(true);
  request.set_logprobs(0);
  if (call.common.has_priority()) request.set_priority(call.common.priority());
  request.set_cache_salt(call.common.cache_salt());
  GenerateCall scores{.model = call.model, .num_bytes = call.num_bytes};
  scores.requests.assign(call.pairs.size(), request);
  for (const auto& [query, document] : call.pairs) scores.names.inputs.push_back(call.input_names[document]);
  scores.rerank =
      std::make_shared<const RerankSettings>(RerankSettings{.call = std::move(call), .reranker = std::move(reranker)});
  return scores;
}

}  // namespace quire
