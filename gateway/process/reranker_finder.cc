// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/reranker_finder.h"

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gateway/process/manager_error.h"
#include "grpcpp/grpcpp.h"

namespace quire {
namespace {

constexpr absl::string_view kParts[] = {kRerankerPrefix, kRerankerSuffix, "yes", "no"};
constexpr absl::string_view kFirstToken = "<|im_start|>";
// A pair that shows what a chat template makes of all pairs.
constexpr char kQuery[] = "a query";
constexpr char kDocument[] = "a document";

v1::Chat ExamplePair() {
  v1::Chat chat;
  for (const auto& [role, content] : {std::pair("query", kQuery), std::pair("document", kDocument)}) {
    v1::ChatMessage& message = *chat.add_messages();
    message.set_role(role);
    message.set_content(content);
  }
  return chat;
}

std::string ExamplePrompt() {
  return absl::StrCat(kRerankerPrefix, RerankerPair(kRerankerInstruction, kQuery, kDocument), kRerankerSuffix);
}

ApiError NoReranker(const std::string& message) {
  return {.message = message, .code = "unknown_reranker"};
}

// What a model is whose template is no reranker's.
RerankerFinder::Found ByName(const std::string& name) {
  if (!absl::StrContains(absl::AsciiStrToLower(name), "rerank")) return nullptr;
  return NoReranker(
      absl::StrCat("the model ", name, " has the name of a reranker, and its chat template does not write the roles ",
                   "query and document as Qwen3-Reranker does, so it is not clear how it scores; start quire-openai ",
                   "with --reranker=qwen3 if it answers yes or no as that one, or with --reranker=none to compare its ",
                   "embeddings"));
}

}  // namespace

// One call of Find.
struct RerankerFinder::Search {
  std::string authorization;
  std::string fingerprint;
  ManagerLink::MayWait may_wait;
  std::function<void(Found found)> done;
  std::vector<v1::TokenizeResponse> parts;  // [kParts], so far.
};

void RerankerFinder::Find(const std::string& authorization, const v1::GetModelResponse& model,
                          ManagerLink::MayWait may_wait, std::function<void(Found found)> done) {
  if (options_->reranker == RerankerChoice::kNone) return done(nullptr);
  if (!fingerprint_.empty() && fingerprint_ == model.numerics_fingerprint()) return done(found_);
  const auto search = std::make_shared<Search>(Search{.authorization = authorization,
                                                      .fingerprint = model.numerics_fingerprint(),
                                                      .may_wait = std::move(may_wait),
                                                      .done = std::move(done),
                                                      .parts = {}});
  if (options_->reranker == RerankerChoice::kQwen3) return TokenizeParts(search);
  if (!model.has_chat_template()) return Finish(*search, ByName(model.name()));
  link_->RenderChat(
      authorization, ExamplePair(),
      [this, search, name = model.name()](const google::rpc::Status& status, const v1::RenderChatResponse& prompt) {
        if (status.code() == grpc::StatusCode::OK && prompt.text() == ExamplePrompt()) return TokenizeParts(search);
        // Most templates have no such roles.
        if (status.code() == grpc::StatusCode::OK || status.code() == grpc::StatusCode::INVALID_ARGUMENT ||
            status.code() == grpc::StatusCode::FAILED_PRECONDITION) {
          return Finish(*search, ByName(name));
        }
        search->done(ManagerError(status));
      },
      search->may_wait);
}

void RerankerFinder::TokenizeParts(std::shared_ptr<Search> search) {
  const size_t part = search->parts.size();
  if (part < std::size(kParts)) {
    const auto request = std::make_shared<v1::TokenizeRequest>();
    request->set_text(std::string(kParts[part]));
    request->set_add_special_tokens(false);
    link_->Tokenize(
        search->authorization, request,
        [this, search](const google::rpc::Status& status, const v1::TokenizeResponse& tokens) {
          if (status.code() != 0) return search->done(ManagerError(status));
          search->parts.push_back(tokens);
          TokenizeParts(search);
        },
        search->may_wait);
    return;
  }
  const std::vector<v1::TokenizeResponse>& parts = search->parts;
  for (size_t word = 2; word < parts.size(); ++word) {
    const int num_tokens = parts[word].token_ids_size();
    if (num_tokens == 1) continue;
    return Finish(*search, NoReranker(absl::StrCat("a reranker of the kind qwen3 answers with one token, and \"",
                                                   kParts[word], "\" has ", num_tokens, " tokens in this model")));
  }
  if (parts[0].pieces(0) != kFirstToken) {
    return Finish(*search, NoReranker(absl::StrCat("a reranker of the kind qwen3 needs the token ", kFirstToken,
                                                   ", which this model does not have")));
  }
  const auto ids = [](const v1::TokenizeResponse& part) {
    return std::vector<uint32_t>(part.token_ids().begin(), part.token_ids().end());
  };
  const Reranker reranker{
      .prefix = ids(parts[0]), .suffix = ids(parts[1]), .yes = parts[2].token_ids(0), .no = parts[3].token_ids(0)};
  Finish(*search, std::make_shared<const Reranker>(reranker));
}

void RerankerFinder::Finish(const Search& search, Found found) {
  fingerprint_ = search.fingerprint;
  found_ = found;
  search.done(std::move(found));
}

}  // namespace quire
