// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/options.h"

#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/configuration.h"
#include "base/connection_flags.h"
#include "base/listen_address.h"
#include "base/local_address.h"
#include "base/status.h"
#include "client/library/endpoint.h"
#include "gateway/openai/call_syntax.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:8000",
          "Address for HTTP clients: host:port or unix:path. With port 0 the gateway takes a free port and prints it. "
          "With 0.0.0.0 as the host it listens on all networks of the machine, which requires TLS.");
ABSL_FLAG(std::string, manager, "127.0.0.1:50051",
          "Address of the manager: host:port, unix:path, or a gRPC name such as dns:///host:port. With several "
          "managers, of which one leads, list all addresses, separated by commas.");
ABSL_FLAG(bool, require_tokens, false,
          "Refuse requests for the model that have no bearer token. The gateway passes tokens on to the manager, which "
          "checks them if it has --tokens; the gateway does not check them itself.");
ABSL_FLAG(
    std::string, manager_tls_ca, "",
    "PEM file with the certificates of authorities. With it the gateway uses TLS to the manager, and one of these "
    "authorities must have issued the manager's certificate.");
ABSL_FLAG(std::string, manager_tls_cert, "",
          "PEM file with the certificate that the gateway shows to the manager. This file, the key and the CA file are "
          "read again when they change.");
ABSL_FLAG(std::string, manager_tls_key, "", "PEM file with the private key of --manager-tls-cert, without a password.");
ABSL_FLAG(std::string, manager_name, "",
          "DNS name that the manager's certificate must contain. If empty, it is the host in --manager.");
ABSL_FLAG(
    std::string, served_model_name, "",
    "Names under which clients know the model, separated by commas. A request may use any of them, and its answer "
    "has the same name, or the first one if the request has none. If empty, it is the name that the model has at "
    "the manager.");
ABSL_FLAG(
    std::string, tool_call_format, "auto",
    "How the model writes calls of tools: auto, none, or a format that docs/openai.md lists, such as hermes, qwen3_xml "
    "or openai. With auto, the format is taken from the chat template of the model. With none, calls are part of the "
    "text.");
ABSL_FLAG(
    std::string, reasoning_format, "auto",
    "How the model writes its thoughts: auto, none, think for <think>...</think>, or another format that "
    "docs/openai.md lists. With auto, the format is taken from the chat template of the model. With none, thoughts are "
    "part of the text.");
ABSL_FLAG(
    std::string, reranker, "auto",
    "How the model scores a document for a query in /v1/rerank and /v1/score: auto, none, or qwen3 for a model that "
    "answers yes or no to the prompt of Qwen3-Reranker. With auto, it is qwen3 if the chat template of the model "
    "writes "
    "this prompt. With none, the score is the cosine of two embeddings.");
ABSL_FLAG(std::string, unknown_fields, "refuse",
          "What becomes of a request with a field that this server does not know: refuse or warn. With warn, the field "
          "is ignored, counted in quire_openai_ignored_fields_total, and named in the log, at most once per second. "
          "Known fields with a value that is not supported are refused nevertheless.");
ABSL_FLAG(std::string, client_names, "quire-client,quire-admin",
          "DNS names or URIs, separated by commas; with --tls-ca the certificate of a client that uses the model must "
          "contain one of them. * accepts every name.");
ABSL_FLAG(int32_t, max_connections_per_address, 0,
          "Largest number of connections from one IP address, at most --max-connections. Further ones are closed at "
          "once. 0: seven eighths of --max-connections, so that one client cannot take all of them.");
ABSL_FLAG(int32_t, max_callers, 256,
          "Largest number of bearer tokens whose requests run at the same time. Requests with further tokens are "
          "refused with 429.");
ABSL_FLAG(int32_t, max_body_bytes, 16 << 20,
          "Largest size of the body of a request, in bytes. Larger ones are refused with 413.");
ABSL_FLAG(int64_t, max_receiving_bytes, int64_t{256} << 20,
          "Memory for all bodies of more than 64 KiB that arrive or wait to be read, in bytes. One IP address can use "
          "three quarters of it. When it is used up, the address that has most loses an unfinished body with 503.");
ABSL_FLAG(int64_t, max_waiting_bytes, int64_t{256} << 20,
          "Memory for all requests for which the manager has not sent anything yet, in bytes. When it is used up, "
          "further requests are refused with 503.");
ABSL_FLAG(int32_t, max_unsent_bytes, 1 << 20,
          "Largest part of a stream that waits for a client that reads slowly, in bytes. Beyond it the client is "
          "disconnected, and its request ends.");
ABSL_FLAG(
    int64_t, max_answer_bytes, int64_t{256} << 20,
    "Memory for all answers that are collected, or that wait for clients which read slowly, in bytes. A caller (a "
    "bearer token with --require-tokens, otherwise an address) may use at most as much as is left for all others. An "
    "answer that grows beyond that ends with 429.");
ABSL_FLAG(int64_t, max_answer_logprobs, int64_t{1} << 20,
          "Largest number of logprobs in an answer, over all prompts, choices and tokens, with their alternatives. A "
          "request for more is refused with 400. Logprobs of streamed tokens count for responses only, whose streams "
          "repeat them at the end.");
ABSL_FLAG(absl::Duration, request_timeout, absl::ZeroDuration(),
          "How long a request may take, from its arrival to the end of its answer. A client may set a shorter time "
          "with the header X-Request-Timeout. The manager refuses a request at once if it would wait too long for this "
          "time. 0: there is no limit.");
ABSL_FLAG(absl::Duration, head_timeout, absl::Seconds(10),
          "How long the TLS handshake and the head of a request may take.");
ABSL_FLAG(absl::Duration, body_timeout, absl::Seconds(30), "How long the body of a request may take to arrive.");
ABSL_FLAG(absl::Duration, idle_timeout, absl::Seconds(75), "How long a connection may stay open between two requests.");
ABSL_FLAG(absl::Duration, write_timeout, absl::Seconds(30),
          "How long a client may read nothing while data waits for it, before it is disconnected.");
ABSL_FLAG(absl::Duration, send_timeout, absl::Minutes(5),
          "How long a client may take to read a whole answer, or the pending part of a stream, before it is "
          "disconnected.");
ABSL_FLAG(absl::Duration, call_timeout, absl::Seconds(10),
          "How long the manager may take to answer calls that generate nothing.");
ABSL_FLAG(
    absl::Duration, manager_wait, absl::Seconds(5),
    "How long a request waits when no manager takes it: none can be reached or leads, or the one that leads has no "
    "worker yet, for example because it is started again. After this time it gets 503. Requests that wait count "
    "for --max-waiting-bytes. 0: it gets 503 at once.");
ABSL_FLAG(absl::Duration, resume_time, absl::Seconds(30),
          "How long an answer whose manager was lost waits for a manager that continues it. It then ends with an "
          "error. 0: it ends at once, and the manager lets no request outlive its connection to the gateway.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "How long running requests may continue after SIGTERM or Ctrl-C. New connections are refused.");

namespace quire {
namespace {

absl::Status ReadManager(GatewayOptions* options) {
  options->manager = absl::GetFlag(FLAGS_manager);
  QUIRE_RETURN_IF_ERROR(AboutFlag("--manager", CheckEndpoints(options->manager)));
  options->manager_tls = {absl::GetFlag(FLAGS_manager_tls_cert), absl::GetFlag(FLAGS_manager_tls_key),
                          absl::GetFlag(FLAGS_manager_tls_ca)};
  options->manager_name = absl::GetFlag(FLAGS_manager_name);
  const TlsFiles& tls = options->manager_tls;
  if (tls.authority.empty() && !(tls.certificate.empty() && tls.key.empty())) {
    return absl::InvalidArgumentError(
        "--manager-tls-ca is missing: --manager-tls-cert and --manager-tls-key mean nothing without it");
  }
  if (tls.certificate.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError("--manager-tls-cert and --manager-tls-key need each other");
  }
  for (const std::string& endpoint : SplitEndpoints(options->manager)) {
    if (!tls.authority.empty() || IsLocalAddress(endpoint) || options->transport.is_insecure) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--manager is '", endpoint, "' on another machine: set --manager-tls-ca, or --insecure"));
  }
  return tls.authority.empty() ? absl::OkStatus() : CheckTlsFiles(tls, "--manager-tls-");
}

absl::StatusOr<std::vector<std::string>> ReadServedNames() {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(absl::GetFlag(FLAGS_served_model_name), ',')) {
    const std::string name(absl::StripAsciiWhitespace(part));
    if (name.empty()) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--served-model-name has the name '", name, "' twice"));
    }
    names.push_back(name);
  }
  return names;
}

absl::Status ReadFormats(AnswerFormatOptions* formats) {
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
  QUIRE_ASSIGN_OR_RETURN(formats->tool_calls, FlagChoice<std::string>(FLAGS_tool_call_format, calls));
  QUIRE_ASSIGN_OR_RETURN(formats->reasoning, FlagChoice<std::string>(FLAGS_reasoning_format, reasoning));
  return absl::OkStatus();
}

absl::Status ReadLimits(GatewayOptions* options) {
  const int max_connections = options->max_connections;
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_connections_per_address", absl::GetFlag(FLAGS_max_connections_per_address),
                                       0, max_connections));
  options->max_connections_per_address = absl::GetFlag(FLAGS_max_connections_per_address);
  if (options->max_connections_per_address == 0) {
    // All clients of a unix socket have the same address, none.
    const bool has_addresses = !absl::StartsWith(options->listen, kUnixPrefix);
    options->max_connections_per_address = has_addresses ? std::max(1, max_connections - max_connections / 8) : 0;
  }
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_callers", absl::GetFlag(FLAGS_max_callers), 1, 65'536));
  options->max_callers = static_cast<size_t>(absl::GetFlag(FLAGS_max_callers));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_body_bytes", absl::GetFlag(FLAGS_max_body_bytes), 1024, 1 << 30));
  options->max_body_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_max_body_bytes));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_receiving_bytes", absl::GetFlag(FLAGS_max_receiving_bytes),
                                       absl::GetFlag(FLAGS_max_body_bytes), int64_t{1} << 40));
  options->max_receiving_bytes = absl::GetFlag(FLAGS_max_receiving_bytes);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_waiting_bytes", absl::GetFlag(FLAGS_max_waiting_bytes),
                                       absl::GetFlag(FLAGS_max_body_bytes), int64_t{1} << 40));
  options->max_waiting_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_max_waiting_bytes));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_unsent_bytes", absl::GetFlag(FLAGS_max_unsent_bytes), 1024, 1 << 30));
  options->max_unsent_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_max_unsent_bytes));
  QUIRE_RETURN_IF_ERROR(
      CheckFlagRange("max_answer_bytes", absl::GetFlag(FLAGS_max_answer_bytes), 1 << 20, int64_t{1} << 40));
  options->max_answer_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_max_answer_bytes));
  QUIRE_RETURN_IF_ERROR(
      CheckFlagRange("max_answer_logprobs", absl::GetFlag(FLAGS_max_answer_logprobs), 1024, int64_t{1} << 30));
  options->max_answer_logprobs = static_cast<uint64_t>(absl::GetFlag(FLAGS_max_answer_logprobs));
  QUIRE_ASSIGN_OR_RETURN(options->request_timeout, DurationOrZeroFlag(FLAGS_request_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->head_timeout, DurationFlag(FLAGS_head_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->body_timeout, DurationFlag(FLAGS_body_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->idle_timeout, DurationFlag(FLAGS_idle_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->write_timeout, DurationFlag(FLAGS_write_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->send_timeout, DurationFlag(FLAGS_send_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->call_timeout, DurationFlag(FLAGS_call_timeout));
  QUIRE_ASSIGN_OR_RETURN(options->manager_wait, DurationOrZeroFlag(FLAGS_manager_wait));
  QUIRE_ASSIGN_OR_RETURN(options->resume_time, DurationOrZeroFlag(FLAGS_resume_time));
  QUIRE_ASSIGN_OR_RETURN(options->drain_timeout, DurationFlag(FLAGS_drain_timeout));
  return absl::OkStatus();
}

absl::StatusOr<GatewayOptions> MakeGatewayOptions() {
  GatewayOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.listen, ListenFlag(FLAGS_listen));
  options.requires_tokens = absl::GetFlag(FLAGS_require_tokens);
  QUIRE_ASSIGN_OR_RETURN(options.transport,
                         ReadTransportFlags(options.listen, {"--require-tokens", options.requires_tokens}));
  if (options.requires_tokens && options.transport.tls.certificate.empty() && !IsLocalAddress(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--require-tokens is set and --listen is '", options.listen,
                     "': tokens are not taken over a network without TLS, give --tls-cert"));
  }
  options.client_names = absl::StrSplit(absl::GetFlag(FLAGS_client_names), ',', absl::SkipEmpty());
  QUIRE_ASSIGN_OR_RETURN(options.web_access, ReadWebAccess());
  QUIRE_ASSIGN_OR_RETURN(options.max_connections, ReadMaxConnections());
  QUIRE_RETURN_IF_ERROR(ReadManager(&options));
  QUIRE_ASSIGN_OR_RETURN(options.served_names, ReadServedNames());
  QUIRE_RETURN_IF_ERROR(ReadFormats(&options.formats));
  QUIRE_ASSIGN_OR_RETURN(options.reranker,
                         FlagChoice<RerankerChoice>(FLAGS_reranker, {{"auto", RerankerChoice::kAuto},
                                                                     {"none", RerankerChoice::kNone},
                                                                     {"qwen3", RerankerChoice::kQwen3}}));
  QUIRE_ASSIGN_OR_RETURN(options.ignores_unknown_fields,
                         FlagChoice<bool>(FLAGS_unknown_fields, {{"refuse", false}, {"warn", true}}));
  QUIRE_RETURN_IF_ERROR(ReadLimits(&options));
  QUIRE_ASSIGN_OR_RETURN(options.log, ReadLogFlags());
  QUIRE_ASSIGN_OR_RETURN(options.traces, ReadTraceFlags("quire-openai"));
  return options;
}

}  // namespace

const ProgramFlags& GatewayFlags() {
  static const auto* const flags = new ProgramFlags{
      "quire-openai",
      "serves the OpenAI HTTP interface and passes requests on to a manager.",
      "--manager=host:port [flags]",
      {{"Addresses:",
        {"listen", "manager", "max_connections", "max_connections_per_address", "host_names", "allowed_origins"}},
       TransportFlagGroup(),
       {"Callers:", {"require_tokens", "client_names", "max_callers"}},
       {"Model:", {"served_model_name", "reranker"}},
       {"Answers of chats:", {"tool_call_format", "reasoning_format"}},
       {"TLS to the manager:", {"manager_tls_ca", "manager_tls_cert", "manager_tls_key", "manager_name"}},
       {"Requests:",
        {"unknown_fields", "max_body_bytes", "max_receiving_bytes", "max_waiting_bytes", "request_timeout",
         "manager_wait", "resume_time"}},
       {"Answers:", {"max_answer_bytes", "max_answer_logprobs", "max_unsent_bytes"}},
       {"Times, such as 500ms, 30s or 2m, above 0 and at most 24h:",
        {"head_timeout", "body_timeout", "idle_timeout", "write_timeout", "send_timeout", "call_timeout",
         "drain_timeout"}},
       LogFlagGroup({}),
       TraceFlagGroup(),
       ConfigurationFlagGroup()},
      {"client_names", "host_names", "allowed_origins", "served_model_name"}};
  return *flags;
}

absl::StatusOr<CommandLine<GatewayOptions>> ParseGatewayCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment) {
  return ReadConfiguration<GatewayOptions>(GatewayFlags(), arguments, environment, MakeGatewayOptions);
}

}  // namespace quire
