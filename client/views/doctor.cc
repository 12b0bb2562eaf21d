// SPDX-License-Identifier: Apache-2.0

#include "client/views/doctor.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/version.h"
#include "client/library/probe.h"
#include "client/terminal/output.h"
#include "security/tls_files.h"
#include "security/tls_mismatch.h"
#include "security/tls_probe.h"

namespace quire {
namespace {

using Result = Finding::Result;
using Tell = std::function<void(const Finding&)>;

constexpr double kFullShare = 0.95;
// The alerts QuireCertificateExpires and QuireWorkerStalled use the same limits.
constexpr absl::Duration kRenewBefore = absl::Hours(24 * 7);
constexpr double kMaxStepAgeSeconds = 20;

std::string InMilliseconds(absl::Duration duration) {
  return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(duration));
}

Finding Refused(const char* name, const absl::Status& status) {
  const std::string message =
      absl::StrCat(absl::StatusCodeToString(status.code()), status.message().empty() ? "" : ": ", status.message());
  switch (status.code()) {
    case absl::StatusCode::kUnauthenticated:
      return {Result::kFail, name, message, "give a token (--token, $QUIRE_TOKEN) that the manager's --tokens has"};
    case absl::StatusCode::kPermissionDenied:
      return {Result::kWarn, name, message, "this token or certificate may not call it; an operator's may"};
    case absl::StatusCode::kUnimplemented:
      return {Result::kFail, name, message,
              "what answers is no manager; is it a worker? --endpoint names another place"};
    default:
      return {Result::kFail, name, message, "the manager's log says more"};
  }
}

// Returns the connection, or the reason why nobody could be reached.
absl::StatusOr<Socket> CheckAddress(const ClientOptions& options, const Tell& tell) {
  const absl::StatusOr<std::string> addresses = Resolve(options.endpoint);
  if (!addresses.ok()) {
    tell({Result::kFail, "address", absl::StrCat(options.endpoint, ": ", addresses.status().message()),
          "--endpoint or $QUIRE_ENDPOINT name another place"});
    return addresses.status();
  }
  tell({Result::kOk, "address", absl::StrCat(options.endpoint, " is ", *addresses)});
  const absl::Time begin = absl::Now();
  absl::StatusOr<Socket> connection = Connect(options.endpoint, options.timeout);
  if (!connection.ok()) {
    tell({Result::kFail, "connection", std::string(connection.status().message()),
          "is quire-manager running there, and does its --listen or a firewall let this machine in?"});
    return connection;
  }
  tell({Result::kOk, "connection", absl::StrCat("answers after ", InMilliseconds(absl::Now() - begin))});
  return connection;
}

const char* AdviceOnTls(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnauthenticated:
      return "--tls-ca must be the authority of the manager's certificate, --tls-name a name in it";
    case absl::StatusCode::kPermissionDenied:
      return "the manager has --tls-ca: show a certificate of that authority (--tls-cert, --tls-key)";
    default:
      return "does the manager have --tls-cert, and does it ask for a client's certificate (--tls-cert)?";
  }
}

// Returns false when further checks are useless.
bool CheckTls(const ClientOptions& options, int connection, const Tell& tell) {
  if (options.tls.authority.empty()) {
    if (SpeaksTls(connection, options.timeout)) {
      tell({Result::kFail, "TLS", "the manager seems to speak TLS",
            "give --tls-ca, the authority of the manager's certificate"});
      return false;
    }
    tell({Result::kOk, "TLS", "not asked for; calls go in plain text"});
    return true;
  }
  const std::string name = options.server_name.empty() ? HostOf(options.endpoint) : options.server_name;
  const absl::StatusOr<absl::Time> end = ProbeTls(connection, options.tls, name, options.timeout);
  if (!end.ok() && IsAnswerInPlainText(end.status().message())) {
    tell({Result::kFail, "TLS", absl::StrCat("the manager does not speak TLS: ", end.status().message()),
          "leave out --tls-ca and the other TLS options, or start the manager with --tls-cert and --tls-key"});
    return false;
  }
  if (!end.ok()) {
    tell({Result::kFail, "TLS", std::string(end.status().message()), AdviceOnTls(end.status().code())});
    return false;
  }
  tell(JudgeCertificate("the manager's", *end, absl::Now()));
  if (options.tls.certificate.empty()) return true;
  const absl::StatusOr<absl::Time> own = CertificateExpiry(options.tls.certificate);
  if (own.ok()) tell(JudgeCertificate("our own", *own, absl::Now()));
  return true;
}

void CheckHealth(Client& client, const Tell& tell) {
  for (const char* const service : {"liveness", "readiness"}) {
    const absl::StatusOr<bool> is_serving = client.IsServing(service);
    if (!is_serving.ok()) {
      tell(Refused(service, is_serving.status()));
    } else if (*is_serving) {
      tell({Result::kOk, service, "SERVING"});
    } else {
      tell({Result::kFail, service, "NOT_SERVING", "it drains, or no worker is ready: see the workers below"});
    }
  }
}

void CheckModel(Client& client, const Tell& tell) {
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok()) return tell(Refused("inference", model.status()));
  tell({Result::kOk, "inference",
        absl::StrCat("accepted; model ", model->name(), ", context ", model->max_context_tokens(), " tokens")});
}

void CheckStatus(Client& client, const Tell& tell) {
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return tell(Refused("admin", status.status()));
  tell({Result::kOk, "admin", "accepted"});
  for (const Finding& finding : JudgeStatus(*status)) tell(finding);
}

void CheckGeneration(Client& client, const ClientOptions& options, const Tell& tell) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(0);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(1);
  request.mutable_stopping()->set_ignore_eos(true);
  request.set_bypass_prefix_cache(true);
  const absl::Time begin = absl::Now();
  const std::unique_ptr<GenerateStream> stream = client.Generate(request, options.timeout);
  v1::GenerateResponse response;
  int num_tokens = 0;
  while (stream->Next(&response)) num_tokens += response.token_ids_size();
  const absl::Status status = stream->Finish();
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    tell(
        {Result::kFail, "generation", absl::StrCat("no token within ", absl::FormatDuration(options.timeout)),
         "do workers take steps (`quirectl top`), do requests wait (`quirectl requests`)? --rpc-timeout waits longer"});
  } else if (!status.ok()) {
    tell(Refused("generation", status));
  } else {
    tell({Result::kOk, "generation", absl::StrCat(num_tokens, " token after ", InMilliseconds(absl::Now() - begin))});
  }
}

void CheckMetrics(const std::string& address, absl::Duration timeout, const Tell& tell) {
  const absl::StatusOr<std::string> text = HttpGet(address, "/metrics", timeout);
  if (!text.ok()) {
    return tell({Result::kFail, "metrics", absl::StrCat(address, ": ", text.status().message()),
                 "--metrics-listen of the manager is 127.0.0.1:9460 unless told otherwise"});
  }
  for (const Finding& finding : JudgeMetrics(*text)) tell(finding);
}

// The samples of a metric: its labels in braces, empty without any, and the value.
std::vector<std::pair<std::string, double>> SamplesOf(const std::string& text, absl::string_view metric) {
  std::vector<std::pair<std::string, double>> samples;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    double value = 0;
    if (!absl::ConsumePrefix(&line, metric) || (!absl::StartsWith(line, "{") && !absl::StartsWith(line, " "))) continue;
    const size_t space = line.rfind(' ');
    if (absl::SimpleAtod(line.substr(space + 1), &value)) samples.emplace_back(line.substr(0, space), value);
  }
  return samples;
}

// "worker a" for {worker="a"}, and other labels as they are.
std::string WorkerOf(absl::string_view labels) {
  absl::string_view worker = labels;
  if (!absl::ConsumePrefix(&worker, "{worker=\"") || !absl::ConsumeSuffix(&worker, "\"}")) return std::string(labels);
  return absl::StrCat("worker ", worker);
}

// `generation` is the one that new requests go to.
Finding JudgeWorker(const v1::WorkerStatus& worker, uint64_t generation) {
  const std::string name = absl::StrCat("worker ", worker.address());
  if (worker.state() == v1::WORKER_STATE_REFUSED) {
    return {Result::kFail, name, absl::StrCat("is refused: ", worker.last_error()),
            "correct what the reason names; the manager tries again every few seconds"};
  }
  if (worker.state() != v1::WORKER_STATE_READY) {
    return {
        Result::kFail, name, absl::StrCat("is not connected: ", worker.last_error()),
        MayBeTlsMismatch(worker.last_error())
            ? "does it speak TLS (--worker-tls-ca of quire-manager), under another name (--worker-name), and ask for "
              "a certificate (--worker-tls-cert)?"
            : "does quire-worker run there, and does its model load? Its log says more"};
  }
  const v1::BlockCounts& blocks = worker.blocks();
  const double share = blocks.total() > 0 ? static_cast<double>(blocks.used()) / blocks.total() : 0;
  const std::string state =
      absl::StrFormat("ready, epoch %d, %d steps, %d running, %d waiting, %.0f%% of %d blocks used, %d preemptions",
                      worker.epoch(), worker.steps(), worker.running_requests(), worker.waiting_requests(), 100 * share,
                      blocks.total(), worker.preemptions());
  if (worker.is_draining()) {
    return {Result::kWarn, name, absl::StrCat("drains; ", state), "`quirectl undrain` lets requests in again"};
  }
  if (worker.generation() != generation) {
    const std::string why = worker.last_error().empty() ? "" : absl::StrCat("; ", worker.last_error());
    return {Result::kWarn, name,
            absl::StrFormat("is of generation %d, model %s, and gets no new requests, which go to generation %d%s; %s",
                            worker.generation(), worker.model_name(), generation, why, state),
            "restart it with the newer model to end a rollout"};
  }
  if (share > kFullShare && worker.waiting_requests() > 0) {
    return {Result::kWarn, name, state, "its memory is full and requests wait: more workers, or a larger --kv-bytes"};
  }
  return {Result::kOk, name, state};
}

}  // namespace

Examined Examine(const DoctorOptions& options, const Tell& tell) {
  {
    const absl::StatusOr<Socket> connection = CheckAddress(options.client, tell);
    if (!connection.ok()) return Examined::kUnreached;
    if (!CheckTls(options.client, connection->fd(), tell)) return Examined::kReached;
  }
  Client client(options.client);
  if (IsConnectionError(client.IsServing("liveness").status()) &&
      SpeaksHttp1(options.client.endpoint, options.client.timeout)) {
    tell({Result::kFail, "protocol", DescribeHttpServer(options.client.endpoint),
          "--endpoint or $QUIRE_ENDPOINT name another place"});
    return Examined::kReached;
  }
  if (const absl::Status model = client.GetModel().status(); IsStandbyError(model)) {
    tell({Result::kOk, "leadership", std::string(model.message())});
    return Examined::kStandsBy;
  }
  CheckHealth(client, tell);
  CheckModel(client, tell);
  CheckStatus(client, tell);
  if (options.has_generation_check) CheckGeneration(client, options.client, tell);
  if (!options.metrics.empty()) CheckMetrics(options.metrics, options.client.timeout, tell);
  return Examined::kReached;
}

std::vector<Finding> JudgeStatus(const v1::GetStatusResponse& status) {
  std::vector<Finding> findings;
  if (status.version() == kVersion) {
    findings.push_back({Result::kOk, "version", absl::StrCat("both are ", kVersion)});
  } else {
    findings.push_back({Result::kWarn, "version",
                        absl::StrCat("the manager is ", status.version(), ", this quirectl is ", kVersion),
                        "take the same; what only one of them knows is refused"});
  }
  if (status.is_draining()) {
    findings.push_back({Result::kFail, "manager", "drains: new requests are refused", "it is about to stop"});
  }
  if (status.workers().empty()) {
    findings.push_back({Result::kFail, "workers", "there are none", "--workers of the manager names them"});
  }
  for (const v1::WorkerStatus& worker : status.workers()) findings.push_back(JudgeWorker(worker, status.generation()));
  return findings;
}

std::vector<Finding> JudgeMetrics(const std::string& text) {
  if (!absl::StrContains(text, "quire_")) {
    return {{Result::kFail, "metrics", "it answers, but it is not the metrics port of a manager",
             "see --metrics-listen of the manager"}};
  }
  if (SamplesOf(text, "quire_prompt_tokens_total").empty()) {
    return {{Result::kFail, "metrics", "these are not the metrics of a manager; are they a worker's?",
             "see --metrics-listen of the manager"}};
  }
  std::vector<Finding> findings = {{Result::kOk, "metrics", absl::StrCat(text.size(), " bytes")}};
  double num_refused = 0;
  for (const auto& [labels, value] : SamplesOf(text, "quire_request_rejections_total")) num_refused += value;
  findings.push_back({Result::kOk, "refusals",
                      absl::StrFormat("valid requests that were refused since the start: %.0f", num_refused)});
  if (num_refused > 0) {
    findings.back().result = Result::kWarn;
    findings.back().advice = "quire_request_rejections_total has the reasons";
  }
  for (const auto& [labels, age] : SamplesOf(text, "quire_worker_step_age_seconds")) {
    const bool is_stuck = age > kMaxStepAgeSeconds;
    findings.push_back(
        {is_stuck ? Result::kWarn : Result::kOk, "step",
         absl::StrCat(WorkerOf(labels), labels.empty() ? "" : ": ",
                      age > 0 ? absl::StrFormat("%.1f s in the current step", age) : "no step is running"),
         is_stuck ? "requests run but no step ends: see the worker's log" : ""});
  }
  return findings;
}

Finding JudgeCertificate(const std::string& whose, absl::Time end, absl::Time now) {
  const std::string message =
      absl::StrCat(whose, " certificate ends ", absl::FormatTime("%Y-%m-%d %H:%M", end, absl::UTCTimeZone()), " UTC");
  if (end <= now) return {Result::kFail, "TLS", message, "it has expired: renew it"};
  if (end - now < kRenewBefore) return {Result::kWarn, "TLS", message, "renew it soon; nothing needs a restart"};
  return {Result::kOk, "TLS", message};
}

}  // namespace quire
