// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/manager.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/command_line.h"
#include "base/listening_sockets.h"
#include "base/local_address.h"
#include "base/log.h"
#include "base/status.h"
#include "kv_manager/leadership/fenced_worker_client.h"
#include "kv_manager/metrics/leadership_metrics.h"
#include "kv_manager/metrics/metrics.h"
#include "kv_manager/process/standby.h"
#include "kv_manager/process/tenant_file.h"
#include "kv_manager/worker_link/grpc_worker_client.h"
#include "kv_manager/worker_link/rank_group_client.h"
#include "quire/v1/admin.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "security/credentials.h"
#include "serving/frame_guard.h"
#include "serving/port_metrics.h"
#include "serving/process_metrics.h"
#include "serving/service_main.h"

namespace quire {
namespace {

constexpr int kMaxStreamsPerConnection = 1024;
constexpr int kMinPingIntervalMs = 5'000;  // Clients may probe a connection that is silent during a long prefill.
constexpr absl::Duration kDiscoveryInterval = absl::Seconds(5);
// After the drain, the time for the last messages to arrive.
constexpr absl::Duration kShutdownTimeout = absl::Milliseconds(500);
// Interval at which a starting manager checks whether its addresses are free.
constexpr absl::Duration kAddressInterval = absl::Milliseconds(100);

// Returns when no other process listens at these addresses, or after `patience`. A draining manager keeps them until it
// ends. An empty address means none.
void AwaitFree(const std::vector<std::string>& addresses, absl::Duration patience) {
  const auto is_taken = [](const std::string& address) {
    return !address.empty() && ListeningSockets::Open(address).status().message() == kAddressInUse;
  };
  const absl::Time end = absl::Now() + patience;
  for (bool has_logged = false;; absl::SleepFor(kAddressInterval)) {
    const auto taken = std::find_if(addresses.begin(), addresses.end(), is_taken);
    if (taken == addresses.end() || absl::Now() >= end) return;
    if (std::exchange(has_logged, true)) continue;
    QUIRE_LOG(kInfo) << "another process listens at " << Named("address", *taken)
                     << ", perhaps a manager that drains; waiting for at most " << absl::FormatDuration(patience);
  }
}

StepLoopOptions MakeStepLoopOptions(const ManagerOptions& options) {
  StepLoopOptions loop;
  loop.scheduler = options.scheduler;
  loop.has_prefix_cache = options.has_prefix_cache;
  loop.reads_generation_config = options.inference.limits.uses_model_defaults;
  loop.max_pinned_share = options.max_pinned_share;
  loop.max_worker_bytes = options.max_worker_bytes;
  loop.wait_limits = options.wait_limits;
  loop.max_inbox_requests = options.scheduler.max_waiting_requests;
  loop.max_step_us = int64_t{1000} * options.max_step_ms;
  loop.changes_numerics = options.changes_numerics;
  loop.rebalances = options.rebalances;
  loop.failover_after_us = absl::ToInt64Microseconds(options.failover_after);
  loop.adopt_window_us = absl::ToInt64Microseconds(options.adopt_window);
  loop.worker_grace_us = absl::ToInt64Microseconds(options.worker_grace);
  loop.link.step_timeout_us = absl::ToInt64Microseconds(options.step_timeout);
  return loop;
}

// Makes clients of workers, and of ranks that are one worker, which send the term.
auto WorkerClientMaker(const ManagerOptions& options, const std::atomic<uint64_t>* term) {
  const int timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(options.worker_keepalive_timeout));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options.worker_tls.authority.empty()) credentials = TlsChannelCredentials(options.worker_tls);
  const auto make_rank = [timeout_ms, credentials, name = options.worker_name, term](const std::string& address) {
    return std::make_unique<GrpcWorkerClient>(GrpcWorkerClientOptions{.address = address,
                                                                      .credentials = credentials,
                                                                      .certificate_name = name,
                                                                      .keepalive_timeout_ms = timeout_ms,
                                                                      .term = *term});
  };
  return [make_rank](const std::string& address) { return std::make_unique<RankGroupClient>(address, make_rank); };
}

AccessRules RulesFor(const ManagerOptions& options) {
  return {.has_certificates = !options.transport.tls.authority.empty(),
          .client_names = options.client_names,
          .admin_names = options.admin_names,
          .tokens = options.inference.tokens};
}

// Sentences about what --insecure leaves open.
std::vector<std::string> Warnings(const ManagerOptions& options) {
  std::vector<std::string> warnings;
  const bool has_tokens = !options.tokens.empty();
  if (std::string warning = InsecureWarning(options.transport, options.listen, has_tokens); !warning.empty()) {
    warnings.push_back(std::move(warning));
  }
  const bool has_remote_workers = !std::all_of(options.workers.begin(), options.workers.end(), IsLocalAddress);
  if (has_remote_workers && options.worker_tls.authority.empty()) {
    warnings.push_back("--insecure is set: the connections to workers on other machines have no TLS.");
  }
  return warnings;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Manager>> Manager::Start(const ManagerOptions& options) {
  QUIRE_RETURN_IF_ERROR(CheckTlsFiles(options.worker_tls, "--worker-tls-"));
  ManagerOptions opened = options;
  if (!options.tokens.empty()) {
    absl::StatusOr<std::shared_ptr<TokenFile>> tokens = TokenFile::Open(options.tokens);
    if (!tokens.ok()) return absl::InvalidArgumentError(absl::StrCat("--tokens: ", tokens.status().message()));
    opened.inference.tokens = *std::move(tokens);
  }
  for (const std::string& warning : Warnings(options)) QUIRE_LOG(kWarning) << warning;
  std::unique_ptr<Manager> manager(new Manager(opened));
  ManagerEngine* engine = &manager->engine_;
  if (!options.tenants.empty()) {
    absl::StatusOr<std::unique_ptr<WatchedFile>> tenants =
        OpenTenantFile(options.tenants, [engine](TenantTable table) { engine->SetTenants(std::move(table)); });
    if (!tenants.ok()) return AboutFlag("--tenants", tenants.status());
    manager->tenants_ = *std::move(tenants);
  }
  if (options.standby.keeper == LeaseKeeper::kNone) {
    QUIRE_RETURN_IF_ERROR(manager->ListenWhenFree());
    manager->Lead(/*term=*/0);
  } else {
    QUIRE_RETURN_IF_ERROR(CheckTlsFiles(options.standby.etcd_tls, "--etcd-tls-"));
    QUIRE_RETURN_IF_ERROR(manager->ListenWhenFree());
    manager->StandBy();
  }
  return manager;
}

void Manager::StandBy() {
  const auto exit = [](const absl::Status& reason) {
    // Another manager may lead already, so this one must not do anything more. It comes back as a standby.
    QUIRE_LOG(kError) << "this manager leads no longer and exits with code " << kExitLostLease << ": "
                      << reason.message();
    ExitAtOnce(kExitLostLease);
  };
  leadership_ = std::make_unique<Leadership>(
      options_.standby.lease, MakeLeaseStore(options_.standby, server_->address()),
      Leadership::Hooks{.on_elected = [this](uint64_t term) { Lead(term); }, .on_lost = exit});
  election_ = leadership_.get();
  QUIRE_LOG(kInfo) << "standing by until this manager gets the lease " << Named("lease", options_.standby.lease_name);
  leadership_->Start();
}

bool Manager::CanRestore() const {
  return options_.inference.detach.resume_key.has_value() && options_.adopt_window > absl::ZeroDuration();
}

absl::Status Manager::CheckLeads() const {
  if (options_.standby.keeper == LeaseKeeper::kNone || term_ > 0) return absl::OkStatus();
  return NotLeaderError(ElectionNow());
}

ElectionStatus Manager::ElectionNow() const {
  const Leadership* const election = election_;
  return election == nullptr ? ElectionStatus() : election->status();
}

std::unique_ptr<WorkerClient> Manager::Fenced(std::unique_ptr<WorkerClient> client) const {
  if (leadership_ == nullptr) return client;
  return std::make_unique<FencedWorkerClient>(std::move(client), [this] { return leadership_->MayLead(); });
}

void Manager::Lead(uint64_t term) {
  if (term > 0) {
    QUIRE_LOG(kInfo) << "this manager leads from now on: term " << Named("term", term);
  }
  // Greater than every epoch of an earlier manager, which has opened fewer than a thousand sessions per second, as far
  // as the clocks agree. A worker that has seen a greater one tells it.
  engine_.BeginToLead(static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())));
  term_ = term;
  discovery_ = std::make_unique<WorkerDiscovery>(
      options_.workers, kDiscoveryInterval,
      [this](const std::vector<std::string>& addresses) { engine_.SetWorkers(addresses); });
}

Manager::Manager(const ManagerOptions& options)
    : options_(options),
      spans_(options.traces.is_on() ? std::make_unique<SpanExporter>(options.traces) : nullptr),
      engine_(MakeStepLoopOptions(options),
              {.make_client = [this, make = WorkerClientMaker(options, &term_)](
                                  const std::string& address) { return Fenced(make(address)); },
               .on_readiness = [this](bool ready) { server_->SetReady(ready); },
               .restore_request = [this](const RequestToRestore& found) { return restorer_.Restore(found); }},
              &SteadyClock(), options.max_tenant_labels, Warnings(options)),
      requests_(&engine_, options.inference),
      restorer_(&requests_),
      inference_(&requests_),
      admin_(&engine_, &requests_),
      status_page_({.engine = &engine_,
                    .request_names = [this] { return requests_.registry.Names(); },
                    .has_names = options.status_page == StatusPageKind::kNames,
                    .has_open_calls = options.tokens.empty() && options.transport.tls.authority.empty()}) {
  requests_.charge = [this](const std::string& peer, ClientWork work) {
    GrpcServer* const server = charged_server_;
    if (server == nullptr) return;
    server->Charge(peer, work == ClientWork::kMessage ? FrameGuard::kMicrosPerCall : FrameGuard::kMicrosPerLostCall);
  };
  requests_.is_restoring = [this] { return leaves_requests_ || (CanRestore() && engine_.IsRestoring()); };
  inference_.SetGate([this] { return CheckLeads(); });
  requests_.standby = [this] { return std::string(CheckLeads().message()); };
  if (spans_ != nullptr) requests_.spans = spans_->queue();
}

Manager::~Manager() {
  if (leadership_ != nullptr) leadership_->Stop();
  discovery_.reset();
  engine_.Stop();
}

absl::Status Manager::ListenWhenFree() {
  AwaitFree({options_.listen, options_.health_listen, options_.metrics_listen},
            options_.drain_timeout + kShutdownTimeout);
  return Listen();
}

absl::Status Manager::Listen() {
  const GrpcServerLimits limits{
      .max_message_bytes = static_cast<int>(options_.inference.max_message_bytes),
      .max_streams_per_connection = kMaxStreamsPerConnection,
      .min_ping_interval_ms = kMinPingIntervalMs,
      .max_receiving_bytes = std::max(kDefaultMaxReceivingBytes, 4 * options_.inference.receive_limits.max_bytes),
      .max_connections = options_.max_connections,
      .max_held_bytes = std::max(kDefaultMaxHeldBytes, 2 * options_.inference.receive_limits.max_bytes)};
  QUIRE_ASSIGN_OR_RETURN(const auto credentials,
                         MakeServerCredentials(options_.transport, options_.listen, RulesFor(options_)));
  absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(
      options_.listen, credentials, limits,
      {{v1::InferenceService::service_full_name(), &inference_}, {v1::AdminService::service_full_name(), &admin_}});
  absl::Status error = AboutFlag("--listen", server.status());
  if (server.ok()) {
    server_ = *std::move(server);
    charged_server_ = server_.get();
    requests_.receiving.CountBytesWith(
        [server = server_.get()](const std::string& peer) { return server->ReceivedBytes(peer); });
  }
  if (server_ != nullptr && !options_.health_listen.empty()) {
    error = AboutFlag("--health-listen", server_->ServeHealthAt(options_.health_listen));
  }
  return BothErrors(error, options_.metrics_listen.empty() ? absl::OkStatus() : ServeMetrics());
}

absl::Status Manager::ServeMetrics() {
  absl::StatusOr<std::unique_ptr<MetricsServer>> metrics =
      MetricsServer::Start(options_.metrics_listen, options_.web_access);
  if (!metrics.ok()) return AboutFlag("--metrics-listen", metrics.status());
  if (server_ == nullptr) return absl::OkStatus();  // There is nothing to serve, and the caller has the error.
  metrics_ = *std::move(metrics);
  metrics_->Add(std::make_shared<ManagerMetrics>(&engine_, &requests_.counts, &requests_.resumable,
                                                 MetricsOptions{.has_vllm_names = options_.has_vllm_metrics}));
  metrics_->Add(std::make_shared<CertificateMetrics>(std::vector<CertificateMetrics::File>{
      {"server", options_.transport.tls.certificate}, {"worker client", options_.worker_tls.certificate}}));
  metrics_->Add(std::make_shared<LogMetrics>());
  if (spans_ != nullptr) metrics_->Add(std::make_shared<SpanMetrics>(spans_->queue()));
  std::vector<const WatchedFile*> files;
  if (options_.inference.tokens != nullptr) files.push_back(options_.inference.tokens->file());
  if (tenants_ != nullptr) files.push_back(tenants_.get());
  if (!files.empty()) metrics_->Add(std::make_shared<WatchedFileMetrics>(std::move(files)));
  if (options_.standby.keeper != LeaseKeeper::kNone) {
    metrics_->Add(std::make_shared<LeadershipMetrics>([this] { return ElectionNow(); }));
  }
  metrics_->Add(std::make_shared<PortMetrics>([this] { return server_->Ports(); }));
  if (options_.status_page == StatusPageKind::kOff) return absl::OkStatus();
  metrics_->AddPage("/", [this](const HttpRequest&) { return status_page_.Page(); });
  metrics_->AddPage("/status.json", [this](const HttpRequest& request) { return status_page_.Status(request); });
  metrics_->AddPage("/block.json", [this](const HttpRequest& request) { return status_page_.Block(request); });
  return absl::OkStatus();
}

void Manager::Stop() {
  // A manager that is elected in this moment drains like every leader before it gives the lease back.
  if (leadership_ != nullptr && !leadership_->StopWaiting()) leadership_->Stop();
  engine_.StartDrain();
  // Another manager takes over at once. Without one, nobody knows when the next manager comes.
  const bool awaits_resumable = leadership_ == nullptr || !CanRestore();
  QUIRE_LOG(kInfo) << "draining: running requests " << (awaits_resumable ? "" : "that cannot be resumed ") << "have "
                   << absl::FormatDuration(options_.drain_timeout) << " to finish";
  const absl::Time end = absl::Now() + options_.drain_timeout;
  const bool all_done = engine_.Drain(options_.drain_timeout, awaits_resumable) &&
                        requests_.registry.WaitForReaders(end - absl::Now(), awaits_resumable);
  QUIRE_LOG(kInfo) << (all_done ? "drained" : "the drain timeout has passed; ending the requests that still run");
  leaves_requests_ = CanRestore();
  engine_.Stop();
  if (leadership_ != nullptr) leadership_->Stop();  // The next leader takes over at once.
  server_->Shutdown(kShutdownTimeout);
}

std::string Manager::Summary() const {
  std::string text = absl::StrCat("listening on ", server_->address(), "\n");
  if (!server_->health_address().empty()) absl::StrAppend(&text, "health on ", server_->health_address(), "\n");
  if (metrics_ != nullptr) absl::StrAppend(&text, "metrics on port ", metrics_->port(), "\n");
  return text;
}

}  // namespace quire
