// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/gateway.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "client/library/bearer_token.h"
#include "client/library/client.h"
#include "client/library/endpoint.h"
#include "client/library/manager_links.h"
#include "gateway/chat_page/chat_page_files.h"
#include "gateway/openai/model_list.h"
#include "gateway/openai/tokenize_call.h"
#include "gateway/openai/unknown_url.h"
#include "gateway/process/generate_exchange.h"
#include "gateway/process/manager_error.h"
#include "serving/page_document.h"

namespace quire {
namespace {

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return absl::ToChronoMilliseconds(duration);
}

constexpr char kModelPath[] = "/v1/models/";  // The name of a model follows.

ApiError Unauthenticated(absl::string_view message) {
  return {.http_code = 401, .message = std::string(message), .type = "authentication_error", .code = "invalid_api_key"};
}

ApiError BadBody(const absl::Status& status) {
  return {.message = std::string(status.message())};
}

// The metadata for the manager: "Bearer " and the token of the request, or empty if it has none.
std::variant<std::string, ApiError> AuthorizationOf(const WebRequest& request) {
  absl::string_view token = request.authorization;
  if (token.empty()) return std::string();
  if (!absl::StartsWithIgnoreCase(token, "bearer ")) {
    return Unauthenticated("the header Authorization must be: Bearer TOKEN");
  }
  token.remove_prefix(7);
  const absl::StatusOr<std::string> valid = HeaderToken(absl::StripAsciiWhitespace(token));
  if (!valid.ok()) return Unauthenticated(valid.status().message());
  return valid->empty() ? std::string() : absl::StrCat("Bearer ", *valid);
}

}  // namespace

Gateway::Gateway(const GatewayOptions& options) : options_(options) {}

Gateway::~Gateway() {
  if (server_ != nullptr) server_->Stop(std::chrono::milliseconds(0));
}

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options) {
  std::unique_ptr<Gateway> gateway(new Gateway(options));
  gateway->server_ =
      WebServer::Create({.address = options.listen,
                         .tls = options.transport.tls,
                         .max_connections = options.max_connections,
                         .max_body_bytes = options.max_body_bytes,
                         .max_receiving_bytes = options.max_receiving_bytes,
                         .max_unsent_bytes = options.max_unsent_bytes,
                         .head_timeout = Milliseconds(options.head_timeout),
                         .body_timeout = Milliseconds(options.body_timeout),
                         .idle_timeout = Milliseconds(options.idle_timeout),
                         .write_timeout = Milliseconds(options.write_timeout),
                         .send_timeout = Milliseconds(options.send_timeout),
                         .on_refusal = [self = gateway.get()](int code) { self->metrics_.CountRefusal(code); }});
  WebServer* const server = gateway->server_.get();
  std::vector<std::shared_ptr<grpc::Channel>> managers;
  const std::vector<std::string> endpoints = SplitEndpoints(options.manager);
  for (const std::string& endpoint : endpoints) {
    const ClientOptions one = {
        .endpoint = endpoint, .tls = options.manager_tls, .token = "", .server_name = options.manager_name};
    managers.push_back(endpoints.size() > 1 ? MakeChannel(one, kConnectPatience) : MakeChannel(one));
  }
  gateway->link_ = std::make_unique<ManagerLink>(
      managers, [server](std::function<void()> function) { server->Post(std::move(function)); },
      [server](std::chrono::milliseconds delay, std::function<void()> function) {
        server->PostAfter(delay, std::move(function));
      },
      options.max_callers, Milliseconds(options.call_timeout), options.max_waiting_bytes);
  QUIRE_RETURN_IF_ERROR(AboutFlag(
      "--listen", server->Listen([gateway = gateway.get()](const auto& exchange) { gateway->Handle(exchange); })));
  const std::string warning = InsecureWarning(options.transport, options.listen, options.requires_tokens);
  if (!warning.empty()) {
    QUIRE_LOG(kWarning) << warning;
  }
  return gateway;
}

std::string Gateway::Summary() const {
  return absl::StrCat("listening on ", server_->address(), "\n");
}

void Gateway::Stop() {
  QUIRE_LOG(kInfo) << "draining: running requests have " << absl::FormatDuration(options_.drain_timeout)
                   << " to finish";
  server_->Stop(Milliseconds(options_.drain_timeout));
}

const Gateway::Route Gateway::kRoutes[] = {
    {"/v1/completions", "POST", true, &Gateway::Complete}, {"/v1/chat/completions", "POST", true, &Gateway::Chat},
    {"/v1/models", "GET", true, &Gateway::ListModels},     {kModelPath, "GET", true, &Gateway::DescribeModel},
    {"/tokenize", "POST", true, &Gateway::Tokenize},       {"/detokenize", "POST", true, &Gateway::Detokenize},
    {"/health", "GET", false, &Gateway::ReportHealth},     {"/version", "GET", false, &Gateway::ReportVersion},
    {"/metrics", "GET", false, &Gateway::ReportMetrics},   {"/", "GET", false, &Gateway::ShowChatPage},
};

void Gateway::Handle(const Exchange& exchange) {
  const WebRequest& request = exchange->request();
  const bool is_model = absl::StartsWith(request.path, kModelPath);
  const auto* const route = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& candidate) {
    return is_model ? absl::string_view(candidate.path) == kModelPath : request.path == candidate.path;
  });
  if (route == std::end(kRoutes)) {
    std::vector<absl::string_view> known;
    for (const Route& candidate : kRoutes) known.push_back(candidate.path);
    return RespondWith(UnknownUrl(request.path, known),
                       metrics_.Count(exchange, "other", GatewayMetrics::Kind::kLook).get());
  }
  const bool is_work = absl::string_view(route->method) == "POST";
  const Exchange counted =
      metrics_.Count(exchange, route->path, is_work ? GatewayMetrics::Kind::kWork : GatewayMetrics::Kind::kLook);
  // The server leaves the body of the answer to HEAD out.
  const absl::string_view method = request.method == "HEAD" ? "GET" : request.method;
  if (method != route->method) {
    return RespondWith(
        {.http_code = 405,
         .message = absl::StrCat(request.path, " needs the method ", route->method, ", not ", request.method),
         .code = "method_not_allowed"},
        counted.get());
  }
  const std::variant<std::string, ApiError> authorization = AuthorizationOf(request);
  if (const ApiError* const error = std::get_if<ApiError>(&authorization)) return RespondWith(*error, counted.get());
  if (options_.requires_tokens && route->needs_token && std::get<std::string>(authorization).empty()) {
    return RespondWith(Unauthenticated("the request has no bearer token; send the header Authorization: Bearer TOKEN"),
                       counted.get());
  }
  (this->*route->answer)(std::get<std::string>(authorization), counted);
}

void Gateway::Complete(const std::string& authorization, const Exchange& exchange) {
  const absl::StatusOr<Json> body = ParseBody(exchange->request().body);
  if (!body.ok()) return RespondWith(BadBody(body.status()), exchange.get());
  Generate(ReadCompletionCall(*body), authorization, exchange);
}

void Gateway::Chat(const std::string& authorization, const Exchange& exchange) {
  const absl::StatusOr<Json> body = ParseBody(exchange->request().body);
  if (!body.ok()) return RespondWith(BadBody(body.status()), exchange.get());
  Generate(ReadChatCall(*body), authorization, exchange);
}

void Gateway::Generate(std::variant<GenerateCall, ApiError> call, const std::string& authorization,
                       const Exchange& exchange) {
  if (const ApiError* const error = std::get_if<ApiError>(&call)) return RespondWith(*error, exchange.get());
  GenerateExchange::Start(std::get<GenerateCall>(std::move(call)), authorization, exchange,
                          {&options_, link_.get(), server_.get(), &answers_});
}

void Gateway::WithModel(const std::string& name, const std::string& authorization, const Exchange& exchange,
                        std::function<void(const v1::GetModelResponse& model)> use) {
  link_->GetModel(authorization, [name, exchange, use = std::move(use)](const google::rpc::Status& status,
                                                                        const v1::GetModelResponse& model) {
    if (status.code() != 0) return RespondWith(ManagerError(status), exchange.get());
    if (!name.empty() && name != model.name()) return RespondWith(NoSuchModel(name, model.name()), exchange.get());
    use(model);
  });
}

void Gateway::ListModels(const std::string& authorization, const Exchange& exchange) {
  WithModel("", authorization, exchange, [this, exchange](const v1::GetModelResponse& model) {
    exchange->Respond({.body = ModelList(model, start_)});
  });
}

void Gateway::DescribeModel(const std::string& authorization, const Exchange& exchange) {
  const std::string name = ModelNameOfUrl(exchange->request().path.substr(sizeof(kModelPath) - 1));
  if (name.empty()) return ListModels(authorization, exchange);  // The client joined "/v1/models/" and nothing.
  WithModel(name, authorization, exchange, [this, exchange](const v1::GetModelResponse& model) {
    exchange->Respond({.body = ModelObject(model, start_)});
  });
}

void Gateway::Tokenize(const std::string& authorization, const Exchange& exchange) {
  const absl::StatusOr<Json> body = ParseBody(exchange->request().body);
  if (!body.ok()) return RespondWith(BadBody(body.status()), exchange.get());
  const std::variant<TokenizeCall, ApiError> read = ReadTokenizeCall(*body);
  if (const ApiError* const error = std::get_if<ApiError>(&read)) return RespondWith(*error, exchange.get());
  const auto& call = std::get<TokenizeCall>(read);
  WithModel(call.model, authorization, exchange, [this, call, authorization, exchange](const auto& model) {
    const auto answer = [call, exchange, context = model.max_context_tokens()](const google::rpc::Status& status,
                                                                               const auto& response) {
      if (status.code() != 0) return RespondWith(ManagerError(status), exchange.get());
      exchange->Respond({.body = TokenizeBody(call, response, context)});
    };
    if (const auto* const chat = std::get_if<v1::Chat>(&call.prompt)) {
      link_->RenderChat(authorization, *chat, answer);
    } else {
      link_->Tokenize(authorization, std::get<v1::TokenizeRequest>(call.prompt), answer);
    }
  });
}

void Gateway::Detokenize(const std::string& authorization, const Exchange& exchange) {
  const absl::StatusOr<Json> body = ParseBody(exchange->request().body);
  if (!body.ok()) return RespondWith(BadBody(body.status()), exchange.get());
  const std::variant<DetokenizeCall, ApiError> read = ReadDetokenizeCall(*body);
  if (const ApiError* const error = std::get_if<ApiError>(&read)) return RespondWith(*error, exchange.get());
  const auto& call = std::get<DetokenizeCall>(read);
  WithModel(call.model, authorization, exchange, [this, call, authorization, exchange](const auto& /*model*/) {
    link_->Detokenize(authorization, call.request, [exchange](const google::rpc::Status& status, const auto& response) {
      if (status.code() != 0) return RespondWith(ManagerError(status, {.prompt = "tokens"}), exchange.get());
      exchange->Respond({.body = DetokenizeBody(response)});
    });
  });
}

void Gateway::ReportHealth(const std::string& /*authorization*/, const Exchange& exchange) {
  link_->CheckHealth(
      [exchange](const google::rpc::Status& status, const grpc::health::v1::HealthCheckResponse& health) {
        if (status.code() == grpc::StatusCode::NOT_FOUND) {  // A worker has no such service.
          google::rpc::Status unimplemented;
          unimplemented.set_code(grpc::StatusCode::UNIMPLEMENTED);
          return RespondWith(ManagerError(unimplemented), exchange.get());
        }
        if (status.code() != 0) return RespondWith(ManagerError(status), exchange.get());
        if (health.status() == grpc::health::v1::HealthCheckResponse::SERVING) return exchange->Respond({.body = "{}"});
        RespondWith({.http_code = 503,
                     .message = "the manager is not ready",
                     .type = "service_unavailable_error",
                     .code = "not_ready",
                     .retry_after_s = 1},
                    exchange.get());
      });
}

void Gateway::ShowChatPage(const std::string& /*authorization*/, const Exchange& exchange) {
  static const auto* const page = new PageDocument(MakePageDocument(kChatHtml, kChatCss, kChatJs));
  exchange->Respond({.content_type = "text/html; charset=utf-8",
                     .body = page->html,
                     .headers = {{"Content-Security-Policy", page->policy}}});
}

void Gateway::ReportVersion(const std::string& /*authorization*/, const Exchange& exchange) {
  exchange->Respond({.body = absl::StrCat("{\"version\":\"", kVersion, "\"}")});
}

void Gateway::ReportMetrics(const std::string& /*authorization*/, const Exchange& exchange) {
  exchange->Respond(
      {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.Page(server_->stats())});
}

}  // namespace quire
