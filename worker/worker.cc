// SPDX-License-Identifier: Apache-2.0

#include "worker/worker.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/pool_summary.h"
#include "base/status.h"
#include "base/version.h"
#include "base/worker_protocol.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/line_writer.h"
#include "kernels/ucx/open_group.h"
#include "security/credentials.h"
#include "serving/port_metrics.h"
#include "serving/process_metrics.h"
#include "worker/cache_grouping.h"
#include "worker/description.h"
#include "worker/device_check.h"
#include "worker/gpu_memory.h"
#include "worker/host_memory.h"
#include "worker/memory_explanation.h"
#include "worker/metrics.h"
#include "worker/model/fp8.h"
#include "worker/model/hub_cache.h"
#include "worker/model/shard.h"
#include "worker/model/simulated_model.h"
#include "worker/planned_limits.h"
#include "worker/warm_up.h"

namespace quire {
namespace {

constexpr GrpcServerLimits kServerLimits{
    .max_message_bytes = kMaxWorkerMessageBytes,
    .max_streams_per_connection = 16,  // A manager needs two: one for its session and one for Describe.
    .min_ping_interval_ms = 5'000,     // A manager probes a silent connection every 20 seconds.
};
// Sessions have ended before the server stops, so this time is only for sending their last bytes. A client that keeps
// an idle connection open may use all of it.
constexpr absl::Duration kShutdownTimeout = absl::Milliseconds(300);

// Logs a line of the backend for GPUs or of its library.
void LogGpuLine(bool is_error, const char* line) {
  if (is_error) {
    QUIRE_LOG(kError) << "GPU: " << line;
  } else {
    QUIRE_LOG(kWarning) << "GPU: " << line;
  }
}

// Makes the backend for a GPU, after it has checked what config.json tells of the model.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(const WorkerOptions& options, const ModelConfig& config,
                                                        DeviceOpener open_device) {
  QUIRE_RETURN_IF_ERROR(
      CheckShapesForGpu(options.model, config, options.rounding, &cuda::CudaBackend::Supports, options.device));
  cuda::SetLineWriter(&LogGpuLine);
  std::string why_not;
  std::unique_ptr<cuda::Device> device = open_device(options.gpu_library,
                                                     {.ordinal = *options.gpu,
                                                      .exact = options.exact_gpu,
                                                      .tuning_cache = options.gpu_tuning_cache,
                                                      .overlaps_launches = options.gpu_overlap,
                                                      .head_dim = config.head_dim,
                                                      .warp_groups = options.gpu_warp_groups,
                                                      .write_line = &LogGpuLine,
                                                      .longest_wait = absl::ToChronoMilliseconds(options.gpu_timeout)},
                                                     &why_not);
  if (device == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("--device=", options.device, ": ", why_not));
  }
  if (const BackendStatus groups = options.rank ? device->CheckGroups() : BackendStatus::Ok(); !groups.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("--tp=", options.num_ranks, ": ", groups.message()));
  }
  return std::make_unique<cuda::CudaBackend>(std::move(device),
                                             cuda::CudaBackendOptions{.element = GpuElementFor(config, options.kv_type),
                                                                      .exact = options.exact_gpu,
                                                                      .graphs = options.gpu_graphs,
                                                                      .rounds_int8_inputs = options.gpu_int8_inputs,
                                                                      .rounds_fp8_inputs = options.gpu_fp8_inputs,
                                                                      .num_ranks = options.num_ranks});
}

// Checks that a GPU has enough memory for the weights, before minutes of loading show that it has not.
absl::Status CheckGpuMemory(const WorkerOptions& options, const ModelConfig& config, const Backend& backend) {
  const std::optional<size_t> total = backend.TotalBytes(), free = backend.FreeBytes();
  if (!total || !free) return absl::OkStatus();
  return CheckWeightsFit(config, options.rounding,
                         {.device = absl::StrCat("--device=", options.device, " (", backend.Description(), ")"),
                          .total_bytes = static_cast<int64_t>(*total),
                          .free_bytes = static_cast<int64_t>(*free)});
}

// How long a rank whose session has ended waits for the others.
constexpr std::chrono::milliseconds kGroupPatience(1000);

KvLayout LayoutFor(const WorkerOptions& options, const ModelConfig& config, const Backend& backend) {
  const KvType otherwise = options.gpu ? KvTypeOf(backend.ActivationType()) : KvTypeOf(config);
  return LayoutOf(config, options.block_size, options.kv_type.value_or(otherwise));
}

// Returns an error if the pool and the host tier would not even fit without weights. So nobody waits for a large model
// to be loaded before such an error.
absl::Status CheckHostMemory(const WorkerOptions& options, const ModelConfig& config, const KvLayout& layout) {
  const int64_t host_bytes = HostShareOfRank(options, AvailableHostMemory());
  QUIRE_ASSIGN_OR_RETURN(const uint32_t num_host_blocks, PlanHostTier(SwapOfRank(options), layout, host_bytes));
  const int64_t pool_bytes = host_bytes - static_cast<int64_t>(num_host_blocks * layout.block_bytes_all_layers());
  return PlanPool(PoolOfRank(options), layout, LimitsWithoutBlocks(options, config), pool_bytes).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  return Start(options, &cuda::OpenDevice);
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options, DeviceOpener open_device) {
  std::unique_ptr<Worker> worker(new Worker());
  QUIRE_RETURN_IF_ERROR(worker->MakeRankGroup(options));
  QUIRE_RETURN_IF_ERROR(worker->Listen(options));
  QUIRE_RETURN_IF_ERROR(worker->Load(options, open_device));
  QUIRE_RETURN_IF_ERROR(worker->TakeMemory(options));
  worker->AddModelMetrics();
  worker->Serve();
  return worker;
}

Worker::~Worker() {
  StopServing();
}

void Worker::SetReady(bool is_ready) {
  const MutexLock lock(&ready_mutex_);
  server_->SetReady(is_ready && !is_stopping_);
}

void Worker::Stop() {
  {
    const MutexLock lock(&ready_mutex_);
    is_stopping_ = true;
  }
  SetReady(false);
  QUIRE_LOG(kInfo) << "draining; the manager's session may continue for " << absl::FormatDuration(drain_timeout_);
  const bool has_drained = loop_->Drain(drain_timeout_);
  QUIRE_LOG(kInfo) << (has_drained ? "drained" : "the drain timeout has passed; ending the session");
  StopServing();
}

void Worker::StopServing() {
  if (simulated_ != nullptr) simulated_->Interrupt();
  if (loop_ != nullptr) loop_->Stop();
  if (server_ != nullptr) server_->Shutdown(kShutdownTimeout);
}

absl::Status Worker::MakeRankGroup(const WorkerOptions& options) {
  if (!options.rank) return absl::OkStatus();
  const RankHosts& hosts = options.rank_hosts;
  const GroupTransport transport = {
      .kind = hosts.IsOneHost() ? GroupTransport::Kind::kShared : GroupTransport::Kind::kNetwork,
      .devices = hosts.network_devices};
  const auto open = [transport](std::string* why_not) { return ucx::OpenGroup(transport, why_not); };
  std::string why_not;
  if (open(&why_not) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("--tp=", options.num_ranks, ": ", why_not));
  }
  const RankPlace place{
      .group_id = options.group_id, .rank = *options.rank, .size = options.num_ranks, .addresses = hosts.addresses};
  ranks_ = std::make_unique<RankGroup>(place, open, kGroupPatience);
  return absl::OkStatus();
}

absl::Status Worker::Listen(const WorkerOptions& options) {
  const std::string warning = InsecureWarning(options.transport, options.listen, /*has_other_proof=*/false);
  if (!warning.empty()) {
    QUIRE_LOG(kWarning) << warning << " Everyone who reaches it can run plans.";
  }
  QUIRE_ASSIGN_OR_RETURN(const auto credentials,
                         MakeServerCredentials(options.transport, options.listen,
                                               {.has_certificates = !options.transport.tls.authority.empty(),
                                                .manager_names = options.manager_names}));
  GrpcServerLimits limits = kServerLimits;
  limits.max_connections = options.max_connections;
  absl::StatusOr<std::unique_ptr<GrpcServer>> server =
      GrpcServer::Start(options.listen, credentials, limits, {{v1::WorkerService::service_full_name(), &service_}});
  absl::Status error = AboutFlag("--listen", server.status());
  if (server.ok()) server_ = *std::move(server);
  if (server_ != nullptr && !options.health_listen.empty()) {
    error = AboutFlag("--health-listen", server_->ServeHealthAt(options.health_listen));
  }
  QUIRE_RETURN_IF_ERROR(BothErrors(error, ServeMetrics(options)));
  QUIRE_LOG(kInfo) << "the worker is not ready until it has loaded " << options.model
                   << (metrics_ == nullptr ? "" : absl::StrCat("; metrics on port ", metrics_->port()));
  return absl::OkStatus();
}

absl::Status Worker::Load(WorkerOptions options, DeviceOpener open_device) {
  QUIRE_ASSIGN_OR_RETURN(options.model, ModelPath(options.model));
  model_name_ = options.model_name;
  drain_timeout_ = options.drain_timeout;
  orphan_hold_ = options.orphan_hold;
  binds_threads_ = options.bind_threads;
  QUIRE_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(options.model, options.long_context));
  QUIRE_RETURN_IF_ERROR(CheckLongContext(config, options.long_context));
  if (config.rope.type == RopeType::kLongRope && !options.long_context) {
    QUIRE_LOG(kInfo) << "the model is served with its original context of " << config.max_position_embeddings
                     << " tokens; with --long-context it has its whole context";
  }
  if (options.simulation) return LoadSimulated(options, config);
  if (options.rank) {
    absl::StatusOr<ModelConfig> shard = ShardOf(config, *options.rank, options.num_ranks);
    if (!shard.ok()) return AboutFlag("--tp", shard.status());
    config = *std::move(shard);
  }
  DivideLayers(options, &config);
  if (options.gpu) {
    QUIRE_ASSIGN_OR_RETURN(backend_, MakeGpuBackend(options, config, open_device));
  } else {
    backend_ = MakeHostBackend(options.threads, options.cpu_kernels);
  }
  const KvLayout layout = LayoutFor(options, config, *backend_);
  QUIRE_RETURN_IF_ERROR(CanRun(backend_->Description(), backend_->CheckLayout(layout, config.num_heads)));
  QUIRE_RETURN_IF_ERROR(CheckGpuMemory(options, config, *backend_));
  if (!options.gpu) QUIRE_RETURN_IF_ERROR(CheckHostMemory(options, config, layout));
  QUIRE_ASSIGN_OR_RETURN(model_, LoadModel(options.model, backend_.get(), &loading_, options.rounding,
                                           options.long_context, options.rank.value_or(0), options.num_ranks));
  DivideLayers(options, &model_->config);
  return absl::OkStatus();
}

absl::Status Worker::LoadSimulated(const WorkerOptions& options, const ModelConfig& config) {
  absl::StatusOr<simulated::TokenRule> rule = TokenRuleOf(config, options.simulation->mean_output_tokens);
  if (!rule.ok()) {
    return absl::Status(rule.status().code(), absl::StrCat(options.model, ": ", rule.status().message()));
  }
  auto backend = std::make_unique<simulated::SimulatedBackend>(*std::move(rule), options.simulation->step_times);
  simulated_ = backend.get();
  backend_ = std::move(backend);
  loading_.Begin(options.model, /*num_files=*/0, /*total_bytes=*/0);
  QUIRE_ASSIGN_OR_RETURN(model_, ReadSimulatedModel(options.model, options.long_context));
  loading_.End();
  return absl::OkStatus();
}

absl::StatusOr<WorkerLimits> Worker::PlanLimits(const WorkerOptions& options, const KvLayout& layout) {
  WorkerLimits limits = LimitsWithoutBlocks(options, model_->config);
  const int64_t host_bytes = HostShareOfRank(options, AvailableHostMemory());
  QUIRE_ASSIGN_OR_RETURN(limits.num_host_blocks, PlanHostTier(SwapOfRank(options), layout, host_bytes));
  int64_t pool_bytes = host_bytes - static_cast<int64_t>(limits.num_host_blocks * layout.block_bytes_all_layers());
  PoolRequest pool = PoolOfRank(options);
  if (backend_->FreeBytes()) {
    QUIRE_ASSIGN_OR_RETURN(pool_bytes, WarmUp(backend_.get(), *model_, layout, limits));
    pool.default_fraction = kGpuMemoryFraction;
  }
  QUIRE_ASSIGN_OR_RETURN(limits.num_blocks, PlanPool(pool, layout, limits, pool_bytes));
  const int64_t full_context = CacheGroupsOf(limits).NumBlocks(limits.max_context_tokens);
  if (limits.num_blocks < full_context) {
    QUIRE_LOG(kWarning) << "the pool has " << limits.num_blocks << " blocks; a sequence of the model's full context, "
                        << limits.max_context_tokens << " tokens, needs " << full_context;
  }
  return limits;
}

absl::Status Worker::TakeMemory(const WorkerOptions& options) {
  const KvLayout layout = LayoutFor(options, model_->config, *backend_);
  QUIRE_ASSIGN_OR_RETURN(const WorkerLimits limits, PlanLimits(options, layout));
  QUIRE_ASSIGN_OR_RETURN(storage_, BlockStorage::Create(backend_.get(), layout, limits.num_blocks,
                                                        limits.num_host_blocks, options.prefault));
  QUIRE_ASSIGN_OR_RETURN(executor_,
                         Executor::Create(backend_.get(), model_.get(), storage_.get(), limits, LogitRowsFor(limits)));
  return RecordSteps(backend_.get(), limits, options.gpu_record_time, executor_.get());
}

absl::Status Worker::ServeMetrics(const WorkerOptions& options) {
  if (options.metrics_listen.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<MetricsServer>> metrics =
      MetricsServer::Start(options.metrics_listen, options.web_access);
  if (!metrics.ok()) return AboutFlag("--metrics-listen", metrics.status());
  if (server_ == nullptr) return absl::OkStatus();  // There is nothing to serve, and the caller has the error.
  metrics_ = *std::move(metrics);
  metrics_->Add(std::make_shared<LoadMetrics>(&loading_));
  metrics_->Add(std::make_shared<CertificateMetrics>(
      std::vector<CertificateMetrics::File>{{"server", options.transport.tls.certificate}}));
  metrics_->Add(std::make_shared<LogMetrics>());
  metrics_->Add(std::make_shared<PortMetrics>([this] { return server_->Ports(); }));
  return absl::OkStatus();
}

void Worker::AddModelMetrics() {
  if (metrics_ == nullptr) return;
  if (backend_->TotalBytes()) {
    metrics_->Add(std::make_shared<DeviceMetrics>([backend = backend_.get()] {
      return DeviceBytes{.total = *backend->TotalBytes(), .free = *backend->FreeBytes()};
    }));
  }
  if (ranks_ != nullptr) metrics_->Add(std::make_shared<RankMetrics>(&stats_));
  const WorkerLimits& limits = executor_->limits();
  metrics_->Add(
      std::make_shared<WorkerMetrics>(&stats_, MetricsInfo{.version = kVersion,
                                                           .model_name = model_name_,
                                                           .device = backend_->Description(),
                                                           .num_blocks = limits.num_blocks,
                                                           .num_host_blocks = limits.num_host_blocks,
                                                           .block_bytes = storage_->layout().block_bytes_all_layers(),
                                                           .block_size = limits.block_size,
                                                           .max_sequences = limits.max_sequences}));
}

void Worker::Serve() {
  // A session or a refusal may come as soon as the service begins. So the worker is ready before.
  SetReady(true);
  v1::DescribeResponse description =
      MakeDescription(model_name_, *model_, *backend_, storage_->layout(), executor_->limits(),
                      ranks_ == nullptr ? nullptr : &ranks_->place());
  // Labels and inventories tell the contents of one group that keeps all tokens.
  const bool keeps_all = executor_->limits().groups == WorkerLimits{}.groups;
  const absl::Duration hold = keeps_all ? orphan_hold_ : absl::ZeroDuration();
  description.set_orphan_hold_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(hold)));
  loop_ = std::make_unique<SessionLoop>(
      executor_.get(), &stats_, binds_threads_, [this](bool is_refused) { SetReady(!is_refused); },
      OrphanHold{.duration = hold, .layout_id = LayoutId(description)}, ranks_.get());
  service_.Begin(std::move(description), loop_.get());
}

std::string Worker::WeightSummary() const {
  const ModelConfig& config = model_->config;
  const WeightRounding& held = model_->weights.rounding;
  const bool is_on_gpu = backend_->TotalBytes().has_value();
  const int64_t bytes = is_on_gpu ? WeightBytesOnGpu(config, held) : WeightBytesOnCpu(config, held);
  const DataType plain = is_on_gpu ? backend_->ActivationType() : HostWeightType(config);
  const auto inputs_of = [&](QuantizedFormat format) {
    const bool rounds_inputs = backend_->RoundsQuantizedInputs(format, ScaleShapeOf(config.quantization.fp8_block));
    return rounds_inputs ? "" : " with inputs of 16 bits";
  };
  const bool has_int4_inputs =
      !is_on_gpu && held.layers == Quantization::kInt4 && held.int4_inputs != Int4Inputs::kInt8;
  return absl::StrCat(FormatBytes(bytes), " in ", HeldBlocks(config.quantization, held),
                      HeldWeights(config.quantization, held.layers, plain),
                      held.layers == Quantization::kNone ? "" : inputs_of(FormatOf(held.layers, held.int4_inputs)),
                      has_int4_inputs ? absl::StrCat(" with --int4-inputs=", Name(held.int4_inputs)) : "",
                      held.output ? absl::StrCat(", output matrix int8", inputs_of(QuantizedFormat::kInt8)) : "",
                      config.moe.exists() ? absl::StrCat("; ", WeightNumbers(config, MemoryNeedsOf(config))) : "");
}

std::string Worker::Summary() const {
  const KvLayout& layout = storage_->layout();
  const ModelConfig& config = model_->config;
  std::string text =
      absl::StrCat("quire-worker ", kVersion, "\n  model   ", model_name_, " (", config.architecture, ", ",
                   Counted(config.num_layers, "layer"), ", context ", config.max_position_embeddings, ")\n");
  if (simulated_ == nullptr) absl::StrAppend(&text, "  weights ", WeightSummary(), "\n");
  if (ranks_ != nullptr) {
    absl::StrAppend(&text, "  rank    ", ranks_->place().rank, " of ", ranks_->place().size, " of group ",
                    ranks_->place().group_id, "\n");
  }
  absl::StrAppend(
      &text, "  device  ", backend_->Description(), "\n  pool    ",
      PoolSummary(storage_->num_blocks(), CacheGroupsOf(executor_->limits()), config.max_position_embeddings), ", ",
      FormatBytes(static_cast<int64_t>(storage_->pool_bytes())), " ", Name(layout.type), "\n");
  if (storage_->num_host_blocks() > 0) {
    absl::StrAppend(&text, "  swap    ", storage_->num_host_blocks(), " blocks, ",
                    FormatBytes(static_cast<int64_t>(storage_->host_bytes())), "\n");
  }
  if (metrics_ != nullptr) absl::StrAppend(&text, "metrics on port ", metrics_->port(), "\n");
  if (!server_->health_address().empty()) absl::StrAppend(&text, "health on ", server_->health_address(), "\n");
  absl::StrAppend(&text, "listening on ", server_->address(), "\n");
  return text;
}

}  // namespace quire
