// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/configuration.h"
#include "base/listen_address.h"
#include "base/local_address.h"
#include "base/status.h"
#include "client/library/endpoint.h"
#include "gateway/openai/call_syntax.h"

namespace quire {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 40;

void AddFormatFlags(AnswerFormatOptions* formats, Settings* table) {
  using Choices = std::vector<std::pair<const char*, std::string>>;
  Choices calls = {{"auto", "auto"}, {"none", "none"}};
  Choices reasoning = calls;
  for (const CallSyntax& syntax : CallSyntaxes()) {
    const std::string name(syntax.name);
    calls.emplace_back(syntax.name.data(), name);
    if (!syntax.alias.empty()) calls.emplace_back(syntax.alias.data(), name);
  }
  for (const ReasoningSyntax& syntax : ReasoningSyntaxes()) {
    reasoning.emplace_back(syntax.name.data(), std::string(syntax.name));
  }
  table->Group("Answers of chats:");
  table->AddChoice("tool_call_format", &formats->tool_calls, calls,
                   "How the model writes calls of tools: auto, none, or a format that docs/openai.md lists, such as "
                   "hermes, qwen3_xml or openai. With auto, the format is taken from the chat template of the model. "
                   "With none, calls are part of the text.");
  table->AddChoice("reasoning_format", &formats->reasoning, reasoning,
                   "How the model writes its thoughts: auto, none, think for <think>...</think>, or another format "
                   "that docs/openai.md lists. With auto, the format is taken from the chat template of the model. "
                   "With none, thoughts are part of the text.");
}

void AddRequestFlags(GatewayOptions* options, Settings* table) {
  table->Group("Requests:");
  table->AddChoice(
      "unknown_fields", &options->ignores_unknown_fields, {{"refuse", false}, {"warn", true}},
      "What becomes of a request with a field that this server does not know: refuse or warn. With warn, the field is "
      "ignored, counted in quire_openai_ignored_fields_total, and named in the log, at most once per second. Known "
      "fields with a value that is not supported are refused nevertheless.");
  table->Add("max_body_bytes", &options->max_body_bytes, {1024, 1 << 30},
             "Largest size of the body of a request, in bytes. Larger ones are refused with 413.");
  table->Add(
      "max_receiving_bytes", &options->max_receiving_bytes, kAnyNumber,
      "Memory for all bodies of more than 64 KiB that arrive or wait to be read, in bytes. One IP address can use "
      "three quarters of it. When it is used up, the address that has most loses an unfinished body with 503.");
  table->Add("max_waiting_bytes", &options->max_waiting_bytes, kAnyNumber,
             "Memory for all requests for which the manager has not sent anything yet, in bytes. When it is used up, "
             "further requests are refused with 503.");
  table->Add("request_timeout", &options->request_timeout, TimeRange::kFromZero,
             "How long a request may take, from its arrival to the end of its answer. A client may set a shorter "
             "time with the header X-Request-Timeout. The manager refuses a request at once if it would wait too "
             "long for this time. 0: there is no limit.");
  table->Add("manager_wait", &options->manager_wait, TimeRange::kFromZero,
             "How long a request waits when no manager takes it: none can be reached or leads, or the one that leads "
             "has no worker yet, for example because it is started again. After this time it gets 503. Requests that "
             "wait count for --max-waiting-bytes. 0: it gets 503 at once.");
  table->Add("resume_time", &options->resume_time, TimeRange::kFromZero,
             "How long an answer whose manager was lost waits for a manager that continues it. It then ends with an "
             "error. 0: it ends at once, and the manager lets no request outlive its connection to the gateway.");

  table->Group("Answers:");
  table->Add("max_answer_bytes", &options->max_answer_bytes, {1 << 20, kMaxBytes},
             "Memory for all answers that are collected, or that wait for clients which read slowly, in bytes. A "
             "caller (a bearer token with --require-tokens, otherwise an address) may use at most as much as is left "
             "for all others. An answer that grows beyond that ends with 429.");
  table->Add("max_answer_logprobs", &options->max_answer_logprobs, {1024, 1 << 30},
             "Largest number of logprobs in an answer, over all prompts, choices and tokens, with their "
             "alternatives. A request for more is refused with 400. Logprobs of streamed tokens count for responses "
             "only, whose streams repeat them at the end.");
  table->Add("max_unsent_bytes", &options->max_unsent_bytes, {1024, 1 << 30},
             "Largest part of a stream that waits for a client that reads slowly, in bytes. Beyond it the client is "
             "disconnected, and its request ends.");

  table->Group("Times, such as 500ms, 30s or 2m, above 0 and at most 24h:");
  table->Add("head_timeout", &options->head_timeout, TimeRange::kAboveZero,
             "How long the TLS handshake and the head of a request may take.");
  table->Add("body_timeout", &options->body_timeout, TimeRange::kAboveZero,
             "How long the body of a request may take to arrive.");
  table->Add("idle_timeout", &options->idle_timeout, TimeRange::kAboveZero,
             "How long a connection may stay open between two requests.");
  table->Add("write_timeout", &options->write_timeout, TimeRange::kAboveZero,
             "How long a client may read nothing while data waits for it, before it is disconnected.");
  table->Add(
      "send_timeout", &options->send_timeout, TimeRange::kAboveZero,
      "How long a client may take to read a whole answer, or the pending part of a stream, before it is disconnected.");
  table->Add("call_timeout", &options->call_timeout, TimeRange::kAboveZero,
             "How long the manager may take to answer calls that generate nothing.");
  table->Add("drain_timeout", &options->drain_timeout, TimeRange::kAboveZero,
             "How long running requests may continue after SIGTERM or Ctrl-C. New connections are refused.");
}

absl::Status CheckManager(const GatewayOptions& options) {
  QUIRE_RETURN_IF_ERROR(AboutFlag("--manager", CheckEndpoints(options.manager)));
  const TlsFiles& tls = options.manager_tls;
  QUIRE_RETURN_IF_ERROR(CheckHasAuthority(tls, "--manager-tls-"));
  for (const std::string& endpoint : SplitEndpoints(options.manager)) {
    if (!tls.authority.empty() || IsLocalAddress(endpoint) || options.transport.is_insecure) continue;
    return InvalidArgument("--manager is '", endpoint, "' on another machine: set --manager-tls-ca, or --insecure");
  }
  return tls.authority.empty() ? absl::OkStatus() : CheckTlsFiles(tls, "--manager-tls-");
}

absl::Status FinishServedNames(std::vector<std::string>* names) {
  std::vector<std::string> stripped;
  for (const absl::string_view part : *names) {
    const std::string name(absl::StripAsciiWhitespace(part));
    if (name.empty()) continue;
    if (std::find(stripped.begin(), stripped.end(), name) != stripped.end()) {
      return InvalidArgument("--served-model-name has the name '", name, "' twice");
    }
    stripped.push_back(name);
  }
  *names = std::move(stripped);
  return absl::OkStatus();
}

absl::Status FinishLimits(GatewayOptions* options) {
  const int max_connections = options->max_connections;
  int* const per_address = &options->max_connections_per_address;
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_connections_per_address", *per_address, 0, max_connections));
  // All clients of a unix socket have the same address, none.
  const bool has_addresses = !absl::StartsWith(options->listen, kUnixPrefix);
  if (*per_address == 0 && has_addresses) *per_address = std::max(1, max_connections - max_connections / 8);
  const auto max_body_bytes = static_cast<int64_t>(options->max_body_bytes);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_receiving_bytes", options->max_receiving_bytes, max_body_bytes, kMaxBytes));
  return CheckFlagRange("max_waiting_bytes", static_cast<int64_t>(options->max_waiting_bytes), max_body_bytes,
                        kMaxBytes);
}

// Checks what depends on several flags, and makes the options that are no flag.
absl::Status Finish(GatewayOptions* options) {
  QUIRE_RETURN_IF_ERROR(
      CheckTransport(options->transport, options->listen, {"--require-tokens", options->requires_tokens}));
  QUIRE_RETURN_IF_ERROR(CheckManager(*options));
  QUIRE_RETURN_IF_ERROR(FinishServedNames(&options->served_names));
  if (options->traces.service_name.empty()) options->traces.service_name = "quire-openai";
  return FinishLimits(options);
}

}  // namespace

Settings GatewaySettings(GatewayOptions* options) {
  Settings table{"quire-openai", "serves the OpenAI HTTP interface and passes requests on to a manager.",
                 "--manager=host:port [flags]"};
  table.Group("Addresses:");
  table.Add("listen", &options->listen,
            "Address for HTTP clients: host:port or unix:path. With port 0 the gateway takes a free port and prints "
            "it. With 0.0.0.0 as the host it listens on all networks of the machine, which requires TLS.",
            &CheckListenAddress);
  table.Add("manager", &options->manager,
            "Address of the manager: host:port, unix:path, or a gRPC name such as dns:///host:port. With several "
            "managers, of which one leads, list all addresses, separated by commas.");
  AddMaxConnectionsFlag(&options->max_connections, &table);
  table.Add("max_connections_per_address", &options->max_connections_per_address, kAnyNumber,
            "Largest number of connections from one IP address, at most --max-connections. Further ones are closed "
            "at once. 0: seven eighths of --max-connections, so that one client cannot take all of them.");
  AddWebFlags(&options->web_access, &table);

  AddTransportFlags(&options->transport, &table);

  table.Group("Callers:");
  table.Add("require_tokens", &options->requires_tokens,
            "Refuse requests for the model that have no bearer token. The gateway passes tokens on to the manager, "
            "which checks them if it has --tokens; the gateway does not check them itself.");
  table.AddList("client_names", &options->client_names,
                "DNS names or URIs, separated by commas; with --tls-ca the certificate of a client that uses the "
                "model must contain one of them. * accepts every name.");
  table.Add("max_callers", &options->max_callers, {1, 65'536},
            "Largest number of bearer tokens whose requests run at the same time. Requests with further tokens are "
            "refused with 429.");

  table.Group("Model:");
  table.AddList("served_model_name", &options->served_names,
                "Names under which clients know the model, separated by commas. A request may use any of them, and "
                "its answer has the same name, or the first one if the request has none. If empty, it is the name "
                "that the model has at the manager.");
  table.AddChoice(
      "reranker", &options->reranker,
      {{"auto", RerankerChoice::kAuto}, {"none", RerankerChoice::kNone}, {"qwen3", RerankerChoice::kQwen3}},
      "How the model scores a document for a query in /v1/rerank and /v1/score: auto, none, or qwen3 for a model that "
      "answers yes or no to the prompt of Qwen3-Reranker. With auto, it is qwen3 if the chat template of the model "
      "writes this prompt. With none, the score is the cosine of two embeddings.");

  AddFormatFlags(&options->formats, &table);

  table.Group("TLS to the manager:");
  table.Add("manager_tls_ca", &options->manager_tls.authority,
            "PEM file with the certificates of authorities. With it the gateway uses TLS to the manager, and one of "
            "these authorities must have issued the manager's certificate.");
  table.Add("manager_tls_cert", &options->manager_tls.certificate,
            "PEM file with the certificate that the gateway shows to the manager. This file, the key and the CA "
            "file are read again when they change.");
  table.Add("manager_tls_key", &options->manager_tls.key,
            "PEM file with the private key of --manager-tls-cert, without a password.");
  table.Add("manager_name", &options->manager_name,
            "DNS name that the manager's certificate must contain. If empty, it is the host in --manager.");

  AddRequestFlags(options, &table);
  AddLogFlags(&options->log, &table);
  AddTraceFlags(&options->traces, &table);
  AddConfigurationFlags(&table);
  return table;
}

absl::StatusOr<CommandLine<GatewayOptions>> ParseGatewayCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment) {
  CommandLine<GatewayOptions> line;
  GatewayOptions* const options = &line.options;
  QUIRE_ASSIGN_OR_RETURN(line.text, ReadConfiguration(GatewaySettings(options), arguments, environment,
                                                      [options] { return Finish(options); }));
  return line;
}

}  // namespace quire
