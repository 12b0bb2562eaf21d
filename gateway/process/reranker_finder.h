// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_RERANKER_FINDER_H_
#define QUIRE_GATEWAY_PROCESS_RERANKER_FINDER_H_

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "gateway/manager_link/manager_link.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/reranker.h"
#include "gateway/process/options.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Finds out whether the model that is served is a reranker, as --reranker says. With auto, it is one if its chat
// template turns the roles "query" and "document" into the prompt of reranker.h. A model that has a reranker's name and
// another template is refused, because the cosine of its embeddings means nothing. Only the thread of the server uses
// it.
class RerankerFinder {
 public:
  // Null: the scores of the model are the cosines of its embeddings. The error is for /v1/rerank and /v1/score.
  using Found = std::variant<std::shared_ptr<const Reranker>, ApiError>;

  // Both must outlive it.
  RerankerFinder(const GatewayOptions* options, ManagerLink* link) : options_(options), link_(link) {}

  // Calls `done`, at once or later. What is found is kept for the next call with the same model.
  void Find(const std::string& authorization, const v1::GetModelResponse& model, ManagerLink::MayWait may_wait,
            std::function<void(Found found)> done);

 private:
  struct Search;

  void TokenizeParts(std::shared_ptr<Search> search);
  void Finish(const Search& search, Found found);

  const GatewayOptions* const options_;
  ManagerLink* const link_;
  std::string fingerprint_;  // Of the model that was looked at last. Empty: none.
  Found found_;              // What it is.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_RERANKER_FINDER_H_
