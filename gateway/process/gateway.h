// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_GATEWAY_H_
#define QUIRE_GATEWAY_PROCESS_GATEWAY_H_

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "base/span_exporter.h"
#include "gateway/manager_link/manager_link.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/embed_call.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/tokenize_call.h"
#include "gateway/process/answer_memory.h"
#include "gateway/process/body_reader.h"
#include "gateway/process/gateway_metrics.h"
#include "gateway/process/options.h"
#include "gateway/process/reranker_finder.h"
#include "gateway/web/web_server.h"

namespace quire {

// The interfaces of OpenAI and Anthropic over HTTP, for one manager. See docs/openai.md, docs/responses.md and
// docs/anthropic.md.
class Gateway {
 public:
  // Listens. The manager need not be there yet; until it is, requests get 503.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayOptions& options);
  ~Gateway();

  // The text to print when the gateway has started.
  std::string Summary() const;
  // Refuses new connections and waits until running requests have ended, for at most --drain-timeout.
  void Stop();

 private:
  explicit Gateway(const GatewayOptions& options);

  // A path of the interface, and what answers it.
  struct Route {
    const char* path;
    const char* method;
    bool needs_token;  // The flag --require-tokens asks for it. With --tls-ca, --client-names say who may ask.
    void (Gateway::*answer)(const std::string& authorization, const std::shared_ptr<WebExchange>& exchange);
  };
  static const Route kRoutes[];
  // Returns null if there is nothing at this path.
  static const Route* RouteOf(const std::string& path);

  using Exchange = std::shared_ptr<WebExchange>;

  // These run on the server's thread.
  // Returns the answer to a request that is refused for its path, method, certificate, token or type of body.
  std::optional<WebResponse> CheckHead(const WebRequest& head);
  std::optional<ApiError> ReasonToRefuse(const Route& route, const WebRequest& head) const;
  void Handle(const Exchange& exchange);
  void Complete(const std::string& authorization, const Exchange& exchange);
  void Chat(const std::string& authorization, const Exchange& exchange);
  void Respond(const std::string& authorization, const Exchange& exchange);
  void Message(const std::string& authorization, const Exchange& exchange);
  void CountTokens(const std::string& authorization, const Exchange& exchange);
  void Embed(const std::string& authorization, const Exchange& exchange);
  void Rerank(const std::string& authorization, const Exchange& exchange);
  void Score(const std::string& authorization, const Exchange& exchange);
  using ReadEmbed = std::variant<EmbedCall, ApiError>(const Json& body, UnknownFields unknown);
  void EmbedWith(ReadEmbed* read, const std::string& authorization, const Exchange& exchange);
  // Answers a request that compares texts.
  void Compare(EmbedCall call, const std::string& authorization, const Exchange& exchange);
  void Tokenize(const std::string& authorization, const Exchange& exchange);
  void TokenizeWith(const std::shared_ptr<const TokenizeCall>& call, const std::string& authorization,
                    const Exchange& exchange);
  void Detokenize(const std::string& authorization, const Exchange& exchange);
  void ListModels(const std::string& authorization, const Exchange& exchange);
  void DescribeModel(const std::string& authorization, const Exchange& exchange);
  void ReportHealth(const std::string& authorization, const Exchange& exchange);
  void ShowChatPage(const std::string& authorization, const Exchange& exchange);
  void ReportVersion(const std::string& authorization, const Exchange& exchange);
  void ReportMetrics(const std::string& authorization, const Exchange& exchange);
  void Generate(std::variant<GenerateCall, ApiError> call, const std::string& authorization, const Exchange& exchange);
  // Lets calls for a client wait for a manager until it leaves, for at most --manager-wait after the first failure.
  ManagerLink::MayWait PatienceFor(const Exchange& exchange) const;
  // What WithModel needs to know of a request.
  struct ModelUse {
    std::string name;      // The one that was asked for, or empty.
    size_t num_bytes = 0;  // Of the request. They count as waiting until the model is known.
    ManagerLink::MayWait may_wait;
  };
  // Calls `use` with the model that is served, if clients know it by the name that was asked for or if that is empty.
  void WithModel(const ModelUse& wanted, const std::string& authorization, const Exchange& exchange,
                 std::function<void(const v1::GetModelResponse& model)> use);

  UnknownFields unknown_fields() const {
    return options_.ignores_unknown_fields ? UnknownFields::kIgnore : UnknownFields::kRefuse;
  }

  const GatewayOptions options_;
  const std::time_t start_ = std::time(nullptr);
  const std::unique_ptr<SpanExporter> spans_;  // Null without --otlp-endpoint.
  GatewayMetrics metrics_;                     // Only the server's thread uses it, and the next one.
  AnswerMemory answers_{options_.max_answer_bytes};
  std::unique_ptr<WebServer> server_;
  std::unique_ptr<ManagerLink> link_;
  std::unique_ptr<RerankerFinder> rerankers_;
  std::unique_ptr<BodyReader> bodies_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_GATEWAY_H_
