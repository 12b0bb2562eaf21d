// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/gateway.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/heap_trimmer.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "client/library/bearer_token.h"
#include "client/library/client.h"
#include "client/library/endpoint.h"
#include "client/library/manager_links.h"
#include "gateway/anthropic/message_call.h"
#include "gateway/chat_page/chat_page_files.h"
#include "gateway/openai/embed_call.h"
#include "gateway/openai/model_list.h"
#include "gateway/openai/tokenize_call.h"
#include "gateway/openai/unknown_url.h"
#include "gateway/process/embed_exchange.h"
#include "gateway/process/generate_exchange.h"
#include "gateway/process/manager_error.h"
#include "gateway/process/manager_wait.h"
#include "gateway/process/traced_exchange.h"
#include "gateway/responses/response_call.h"
#include "security/peer_names.h"
#include "serving/http_page.h"

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

// Clients of Anthropic send their token in the header x-api-key, which counts unless Authorization has a bearer token.
bool HasApiKey(const WebRequest& request) {
  return !request.api_key.empty() && !absl::StartsWithIgnoreCase(request.authorization, "bearer");
}

// Returns the metadata for the manager: "Bearer " and the token of the request, or empty if it has none. The error says
// why the headers have no token.
std::variant<std::string, ApiError> AuthorizationOf(const WebRequest& request) {
  if (HasApiKey(request)) {
    const absl::StatusOr<std::string> key = HeaderToken(absl::StripAsciiWhitespace(request.api_key));
    if (!key.ok()) return Unauthenticated(key.status().message());
    if (key->empty()) return Unauthenticated("the token in the header x-api-key is empty");
    return absl::StrCat("Bearer ", *key);
  }
  absl::string_view token = request.authorization;
  if (token.empty()) {
    return Unauthenticated(
        "the request has no bearer token; send the header Authorization: Bearer TOKEN, or x-api-key: TOKEN");
  }
  if (!absl::StartsWithIgnoreCase(token, "bearer")) {
    return Unauthenticated("the header Authorization must be: Bearer TOKEN");
  }
  token.remove_prefix(6);
  if (!token.empty() && token[0] != ' ') return Unauthenticated("the header Authorization must be: Bearer TOKEN");
  const absl::StatusOr<std::string> valid = HeaderToken(absl::StripAsciiWhitespace(token));
  if (!valid.ok()) return Unauthenticated(valid.status().message());
  if (valid->empty()) return Unauthenticated("the bearer token in the header Authorization is empty");
  return absl::StrCat("Bearer ", *valid);
}

// Returns whether the token of the request must not be sent. It would not fit into the metadata of a call.
bool HasLongToken(const WebRequest& request) {
  if (HasApiKey(request)) return absl::StripAsciiWhitespace(request.api_key).size() > kMaxTokenBytes;
  absl::string_view token = request.authorization;
  return absl::StartsWithIgnoreCase(token, "bearer ") &&
         absl::StripAsciiWhitespace(token.substr(sizeof("bearer"))).size() > kMaxTokenBytes;
}

// Returns whether a body of this type may be read as JSON. curl -d says that it sends a form. A web page may send such
// a body to any site without asking, so for pages only the type of JSON will do.
bool IsTypeOfJson(absl::string_view type, bool is_of_page) {
  type = absl::StripAsciiWhitespace(type.substr(0, type.find(';')));
  const bool is_json = absl::EqualsIgnoreCase(type, "application/json") || absl::EndsWithIgnoreCase(type, "+json");
  if (is_json || is_of_page) return is_json;
  return type.empty() || absl::EqualsIgnoreCase(type, "application/x-www-form-urlencoded") ||
         absl::EqualsIgnoreCase(type, "text/plain");
}

// Parses a body and translates it with `read`, which gets the JSON.
template <typename Read>
auto ReadWith(Read read) {
  using Result = decltype(read(Json()));
  return std::function<Result(const std::string&)>([read](const std::string& body) -> Result {
    const absl::StatusOr<Json> json = ParseBody(body);
    if (!json.ok()) return BadBody(json.status());
    return read(*json);
  });
}

// The same for a call of which the messages are measured.
auto ReadCallWith(std::function<std::variant<GenerateCall, ApiError>(const Json& body)> read) {
  return ReadWith([read = std::move(read)](const Json& json) {
    std::variant<GenerateCall, ApiError> result = read(json);
    if (auto* const call = std::get_if<GenerateCall>(&result)) {
      for (const v1::GenerateRequest& request : call->requests) call->num_bytes += request.ByteSizeLong();
    }
    return result;
  });
}

}  // namespace

Gateway::Gateway(const GatewayOptions& options)
    : options_(options), spans_(options.traces.is_on() ? std::make_unique<SpanExporter>(options.traces) : nullptr) {}

Gateway::~Gateway() {
  if (server_ != nullptr) server_->Stop(std::chrono::milliseconds(0));
}

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options) {
  GiveLargeBlocksBack();  // Bodies and answers are such blocks.
  std::unique_ptr<Gateway> gateway(new Gateway(options));
  gateway->server_ = WebServer::Create(
      {.address = options.listen,
       .tls = options.transport.tls,
       .access = options.web_access,
       .max_connections = options.max_connections,
       .max_connections_per_address = options.max_connections_per_address,
       .max_body_bytes = options.max_body_bytes,
       .max_receiving_bytes = options.max_receiving_bytes,
       .max_unsent_bytes = options.max_unsent_bytes,
       .head_timeout = Milliseconds(options.head_timeout),
       .body_timeout = Milliseconds(options.body_timeout),
       .idle_timeout = Milliseconds(options.idle_timeout),
       .write_timeout = Milliseconds(options.write_timeout),
       .send_timeout = Milliseconds(options.send_timeout),
       .on_refusal = [self = gateway.get()](int code) { self->metrics_.CountRefusal("unread", code); },
       .refusal =
           [](const WebRequest& head, int code, absl::string_view message) {
             return ResponseOf({.http_code = code, .message = std::string(message)}, head);
           },
       .check_head = [self = gateway.get()](const WebRequest& head) { return self->CheckHead(head); }});
  gateway->bodies_ = std::make_unique<BodyReader>(gateway->server_.get());
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
  gateway->rerankers_ = std::make_unique<RerankerFinder>(&gateway->options_, gateway->link_.get());
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
    {"/v1/completions", "POST", true, &Gateway::Complete},
    {"/v1/chat/completions", "POST", true, &Gateway::Chat},
    {"/v1/responses", "POST", true, &Gateway::Respond},
    {"/v1/messages", "POST", true, &Gateway::Message},
    {"/v1/messages/count_tokens", "POST", true, &Gateway::CountTokens},
    {"/v1/models", "GET", true, &Gateway::ListModels},
    {kModelPath, "GET", true, &Gateway::DescribeModel},
    {"/v1/embeddings", "POST", true, &Gateway::Embed},
    {"/v1/rerank", "POST", true, &Gateway::Rerank},
    {"/v2/rerank", "POST", true, &Gateway::Rerank},
    {"/rerank", "POST", true, &Gateway::Rerank},
    {"/v1/score", "POST", true, &Gateway::Score},
    {"/score", "POST", true, &Gateway::Score},
    {"/tokenize", "POST", true, &Gateway::Tokenize},
    {"/detokenize", "POST", true, &Gateway::Detokenize},
    {"/health", "GET", false, &Gateway::ReportHealth},
    {"/version", "GET", false, &Gateway::ReportVersion},
    {"/metrics", "GET", false, &Gateway::ReportMetrics},
    {"/", "GET", false, &Gateway::ShowChatPage},
};

const Gateway::Route* Gateway::RouteOf(const std::string& path) {
  const bool is_model = absl::StartsWith(path, kModelPath);
  const auto* const route = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& candidate) {
    return is_model ? absl::string_view(candidate.path) == kModelPath : path == candidate.path;
  });
  return route == std::end(kRoutes) ? nullptr : route;
}

std::optional<WebResponse> Gateway::CheckHead(const WebRequest& head) {
  const Route* const route = RouteOf(head.path);
  std::optional<ApiError> error;
  if (route != nullptr) {
    error = ReasonToRefuse(*route, head);
  } else {
    std::vector<absl::string_view> known;
    for (const Route& candidate : kRoutes) known.push_back(candidate.path);
    error = UnknownUrl(head.path, known);
  }
  if (!error.has_value()) return std::nullopt;
  const std::string path = route == nullptr ? "other" : route->path;
  WebResponse response = ResponseOf(*error, head);
  metrics_.CountRefusal(path, response.code);
  metrics_.LogFailure(head, path, response);
  if (error->http_code == 405) {
    const bool is_get = absl::string_view(route->method) == "GET";
    response.headers.emplace_back("Allow", is_get ? "GET, HEAD" : route->method);
  }
  return response;
}

std::optional<ApiError> Gateway::ReasonToRefuse(const Route& route, const WebRequest& head) const {
  // The server leaves the body of the answer to HEAD out.
  const std::string method = head.method == "HEAD" ? "GET" : head.method;
  if (method != route.method) {
    return ApiError{.http_code = 405,
                    .message = absl::StrCat(head.path, " needs the method ", route.method, ", not ", head.method),
                    .code = "method_not_allowed"};
  }
  if (!route.needs_token) return std::nullopt;
  if (!options_.transport.tls.authority.empty() && !IsOneOf(head.client_names, options_.client_names)) {
    return ApiError{.http_code = 403,
                    .message = "no name in the certificate is one of --client-names of quire-openai",
                    .type = "permission_denied_error",
                    .code = "permission_denied"};
  }
  // Nobody looks at a token that nobody has asked for. But the manager may ask, and then it would miss this one.
  if (options_.requires_tokens || HasLongToken(head)) {
    const std::variant<std::string, ApiError> token = AuthorizationOf(head);
    if (const auto* const error = std::get_if<ApiError>(&token)) return *error;
  }
  if (method != "POST" || IsTypeOfJson(head.content_type, head.is_of_page)) return std::nullopt;
  return ApiError{.http_code = 415,
                  .message = absl::StrCat("the header Content-Type is \"", absl::Utf8SafeCHexEscape(head.content_type),
                                          "\", it must be application/json"),
                  .code = "unsupported_media_type"};
}

void Gateway::Handle(const Exchange& exchange) {
  const WebRequest& request = exchange->request();
  const Route* const route = RouteOf(request.path);
  const std::variant<std::string, ApiError> token = AuthorizationOf(request);
  // Without --require-tokens, the manager decides whether it needs one.
  const auto* const authorization = std::get_if<std::string>(&token);
  const bool is_work = absl::string_view(route->method) == "POST";
  const auto kind = is_work ? GatewayMetrics::Kind::kWork : GatewayMetrics::Kind::kLook;
  const Exchange traced = spans_ == nullptr || !is_work
                              ? exchange
                              : std::make_shared<TracedExchange>(spans_->queue(), exchange, route->path);
  (this->*route->answer)(authorization == nullptr ? "" : *authorization, metrics_.Count(traced, route->path, kind));
}

void Gateway::Complete(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<GenerateCall, ApiError>>(
      exchange,
      ReadCallWith([unknown = unknown_fields()](const Json& body) { return ReadCompletionCall(body, unknown); }),
      [this, authorization, exchange](auto call) { Generate(std::move(call), authorization, exchange); });
}

void Gateway::Chat(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<GenerateCall, ApiError>>(
      exchange, ReadCallWith([unknown = unknown_fields()](const Json& body) { return ReadChatCall(body, unknown); }),
      [this, authorization, exchange](auto call) { Generate(std::move(call), authorization, exchange); });
}

void Gateway::Respond(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<GenerateCall, ApiError>>(
      exchange,
      ReadCallWith([unknown = unknown_fields()](const Json& body) { return ReadResponseCall(body, unknown); }),
      [this, authorization, exchange](auto call) { Generate(std::move(call), authorization, exchange); });
}

void Gateway::Message(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<GenerateCall, ApiError>>(
      exchange, ReadCallWith([unknown = unknown_fields()](const Json& body) { return ReadMessageCall(body, unknown); }),
      [this, authorization, exchange](auto call) { Generate(std::move(call), authorization, exchange); });
}

void Gateway::CountTokens(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<GenerateCall, ApiError>>(
      exchange, ReadWith([unknown = unknown_fields()](const Json& body) { return ReadCountTokensCall(body, unknown); }),
      [this, authorization, exchange](auto read) {
        if (const auto* const error = std::get_if<ApiError>(&read)) return RespondWith(*error, exchange.get());
        metrics_.CountIgnored(exchange->request(), std::get<GenerateCall>(read).ignored);
        const auto call = std::make_shared<const GenerateCall>(std::get<GenerateCall>(std::move(read)));
        const v1::Chat& chat = call->requests[0].chat();
        const ManagerLink::MayWait may_wait = PatienceFor(exchange);
        WithModel({call->model, chat.ByteSizeLong(), may_wait}, authorization, exchange,
                  [this, call, &chat, authorization, exchange, may_wait](const auto& /*model*/) {
                    link_->RenderChat(
                        authorization, chat,
                        [call, exchange](const google::rpc::Status& status, const auto& prompt) {
                          if (status.code() != 0) return RespondWith(ManagerError(status, call->names), exchange.get());
                          exchange->Respond({.body = CountTokensBody(prompt)});
                        },
                        may_wait);
                  });
      });
}

void Gateway::Generate(std::variant<GenerateCall, ApiError> call, const std::string& authorization,
                       const Exchange& exchange) {
  if (const ApiError* const error = std::get_if<ApiError>(&call)) return RespondWith(*error, exchange.get());
  metrics_.CountIgnored(exchange->request(), std::get<GenerateCall>(call).ignored);
  GenerateExchange::Start(std::get<GenerateCall>(std::move(call)), authorization, exchange,
                          {&options_, link_.get(), server_.get(), bodies_.get(), &answers_});
}

ManagerLink::MayWait Gateway::PatienceFor(const Exchange& exchange) const {
  const ManagerWait wait(Milliseconds(options_.manager_wait));
  exchange->OnGone([wait] { wait.End(); });
  return wait.MayWait();
}

void Gateway::WithModel(const ModelUse& wanted, const std::string& authorization, const Exchange& exchange,
                        std::function<void(const v1::GetModelResponse& model)> use) {
  // The next call holds the same bytes.
  const auto hold = std::make_shared<std::shared_ptr<void>>(link_->Hold(wanted.num_bytes));
  if (*hold == nullptr) return RespondWith(ManagerError(link_->BusyError()), exchange.get());
  link_->GetModel(
      authorization,
      [this, name = wanted.name, hold, exchange, use = std::move(use)](const google::rpc::Status& status,
                                                                       const v1::GetModelResponse& model) {
        hold->reset();
        if (status.code() != 0) return RespondWith(ManagerError(status), exchange.get());
        const auto found = NameForAnswer(name, ModelNames(model, options_.served_names));
        if (const auto* const error = std::get_if<ApiError>(&found)) return RespondWith(*error, exchange.get());
        use(model);
      },
      wanted.may_wait);
}

void Gateway::ListModels(const std::string& authorization, const Exchange& exchange) {
  WithModel({.name = "", .may_wait = PatienceFor(exchange)}, authorization, exchange,
            [this, exchange](const v1::GetModelResponse& model) {
              exchange->Respond({.body = ModelList(ModelNames(model, options_.served_names), model, start_)});
            });
}

void Gateway::DescribeModel(const std::string& authorization, const Exchange& exchange) {
  const std::string name = ModelNameOfUrl(exchange->request().path.substr(sizeof(kModelPath) - 1));
  if (name.empty()) return ListModels(authorization, exchange);  // The client joined "/v1/models/" and nothing.
  WithModel({.name = name, .may_wait = PatienceFor(exchange)}, authorization, exchange,
            [this, name, exchange](const v1::GetModelResponse& model) {
              exchange->Respond({.body = ModelObject(name, model, start_)});
            });
}

void Gateway::Embed(const std::string& authorization, const Exchange& exchange) {
  EmbedWith(&ReadEmbeddingsCall, authorization, exchange);
}

void Gateway::Rerank(const std::string& authorization, const Exchange& exchange) {
  EmbedWith(&ReadRerankCall, authorization, exchange);
}

void Gateway::Score(const std::string& authorization, const Exchange& exchange) {
  EmbedWith(&ReadScoreCall, authorization, exchange);
}

void Gateway::EmbedWith(ReadEmbed* read, const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<EmbedCall, ApiError>>(
      exchange, ReadWith([read, unknown = unknown_fields()](const Json& body) { return read(body, unknown); }),
      [this, authorization, exchange](auto call) {
        if (const auto* const error = std::get_if<ApiError>(&call)) return RespondWith(*error, exchange.get());
        metrics_.CountIgnored(exchange->request(), std::get<EmbedCall>(call).ignored);
        if (!std::get<EmbedCall>(call).pairs.empty()) {
          return Compare(std::get<EmbedCall>(std::move(call)), authorization, exchange);
        }
        EmbedExchange::Start(std::get<EmbedCall>(std::move(call)), authorization, exchange,
                             {&options_, link_.get(), bodies_.get(), &answers_});
      });
}

void Gateway::Compare(EmbedCall call, const std::string& authorization, const Exchange& exchange) {
  const ManagerWait wait(Milliseconds(options_.manager_wait));
  const auto has_left = std::make_shared<bool>(false);
  exchange->OnGone([wait, has_left] {
    wait.End();
    *has_left = true;
  });
  const auto compared = std::make_shared<EmbedCall>(std::move(call));
  const auto start = [this, compared, authorization, exchange, has_left](RerankerFinder::Found found) {
    if (*has_left) return;
    if (const auto* const error = std::get_if<ApiError>(&found)) return RespondWith(*error, exchange.get());
    auto reranker = std::get<std::shared_ptr<const Reranker>>(std::move(found));
    if (reranker != nullptr) {
      return GenerateExchange::Start(RerankCall(std::move(*compared), std::move(reranker)), authorization, exchange,
                                     {&options_, link_.get(), server_.get(), bodies_.get(), &answers_});
    }
    if (compared->instruction.has_value()) {
      return RespondWith(FieldError("instruction", "is set, but this model compares embeddings, which have none"),
                         exchange.get());
    }
    EmbedExchange::Start(std::move(*compared), authorization, exchange,
                         {&options_, link_.get(), bodies_.get(), &answers_});
  };
  const ManagerLink::MayWait may_wait = wait.MayWait();
  WithModel({compared->model, compared->num_bytes, may_wait}, authorization, exchange,
            [this, authorization, may_wait, start](const v1::GetModelResponse& model) {
              rerankers_->Find(authorization, model, may_wait, start);
            });
}

void Gateway::Tokenize(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<TokenizeCall, ApiError>>(
      exchange, ReadWith([unknown = unknown_fields()](const Json& body) { return ReadTokenizeCall(body, unknown); }),
      [this, authorization, exchange](auto read) {
        if (const auto* const error = std::get_if<ApiError>(&read)) return RespondWith(*error, exchange.get());
        metrics_.CountIgnored(exchange->request(), std::get<TokenizeCall>(read).ignored);
        TokenizeWith(std::make_shared<const TokenizeCall>(std::get<TokenizeCall>(std::move(read))), authorization,
                     exchange);
      });
}

void Gateway::TokenizeWith(const std::shared_ptr<const TokenizeCall>& call, const std::string& authorization,
                           const Exchange& exchange) {
  const ManagerLink::MayWait may_wait = PatienceFor(exchange);
  const size_t num_bytes = std::visit([](const auto& prompt) { return prompt.ByteSizeLong(); }, call->prompt);
  WithModel({call->model, num_bytes, may_wait}, authorization, exchange,
            [this, call, authorization, exchange, may_wait](const auto& model) {
              const auto answer = [this, call, authorization, exchange, context = model.max_context_tokens()](
                                      const google::rpc::Status& status, const auto& response) {
                if (status.code() != 0) return RespondWith(ManagerError(status), exchange.get());
                RespondWith(TokenizeBody(*call, response, context), CallerOf(options_, authorization, *exchange),
                            &answers_, exchange.get());
              };
              if (const auto* const chat = std::get_if<v1::Chat>(&call->prompt)) {
                link_->RenderChat(authorization, *chat, answer, may_wait);
              } else {
                link_->Tokenize(authorization, {call, &std::get<v1::TokenizeRequest>(call->prompt)}, answer, may_wait);
              }
            });
}

void Gateway::Detokenize(const std::string& authorization, const Exchange& exchange) {
  bodies_->Read<std::variant<DetokenizeCall, ApiError>>(
      exchange, ReadWith([unknown = unknown_fields()](const Json& body) { return ReadDetokenizeCall(body, unknown); }),
      [this, authorization, exchange](auto read) {
        if (const auto* const error = std::get_if<ApiError>(&read)) return RespondWith(*error, exchange.get());
        metrics_.CountIgnored(exchange->request(), std::get<DetokenizeCall>(read).ignored);
        const auto call = std::make_shared<const DetokenizeCall>(std::get<DetokenizeCall>(std::move(read)));
        const ManagerLink::MayWait may_wait = PatienceFor(exchange);
        WithModel({call->model, call->request.ByteSizeLong(), may_wait}, authorization, exchange,
                  [this, call, authorization, exchange, may_wait](const auto& /*model*/) {
                    link_->Detokenize(
                        authorization, {call, &call->request},
                        [this, authorization, exchange](const google::rpc::Status& status, const auto& response) {
                          if (status.code() != 0) {
                            return RespondWith(ManagerError(status, {.prompt = "tokens"}), exchange.get());
                          }
                          RespondWith(DetokenizeBody(response), CallerOf(options_, authorization, *exchange), &answers_,
                                      exchange.get());
                        },
                        may_wait);
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
  static const auto* const page =
      new PageDocument(MakePageDocument(kChatHtml, kChatCss, absl::StrCat(kChatJs, kMarkdownJs, kMarkedUmdMinJs)));
  exchange->Respond({.content_type = "text/html; charset=utf-8",
                     .body = page->html,
                     .headers = {{"Content-Security-Policy", page->policy}}});
}

void Gateway::ReportVersion(const std::string& /*authorization*/, const Exchange& exchange) {
  exchange->Respond({.body = absl::StrCat("{\"version\":\"", kVersion, "\"}")});
}

void Gateway::ReportMetrics(const std::string& /*authorization*/, const Exchange& exchange) {
  exchange->Respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = metrics_.Page(server_->stats(), spans_ == nullptr ? nullptr : spans_->queue())});
}

}  // namespace quire
