#include "worker/worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "worker/description.h"
#include "worker/host_memory.h"

namespace quire {
namespace {

DataType KvTypeOf(const ModelConfig& config) {
  if (config.torch_dtype == "bfloat16") return DataType::kBFloat16;
  if (config.torch_dtype == "float16") return DataType::kFloat16;
  return DataType::kFloat32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  std::unique_ptr<Worker> worker(new Worker());
  QUIRE_RETURN_IF_ERROR(worker->Load(options));
  QUIRE_RETURN_IF_ERROR(worker->TakeMemory(options));
  QUIRE_RETURN_IF_ERROR(worker->Listen(options));
  return worker;
}

Worker::~Worker() {
  Stop();
}

void Worker::Stop() {
  if (server_ != nullptr) server_->SetNotServing();
  if (loop_ != nullptr) loop_->Stop();
  if (server_ != nullptr) server_->Shutdown();
}

absl::Status Worker::Load(const WorkerOptions& options) {
  model_name_ = options.model_name;
  backend_ = MakeCpuBackend(options.threads);
  QUIRE_ASSIGN_OR_RETURN(model_, LoadModel(options.model, backend_.get()));
  return absl::OkStatus();
}

absl::Status Worker::TakeMemory(const WorkerOptions& options) {
  const ModelConfig& config = model_->config;
  const KvLayout layout{.num_layers = config.num_layers,
                        .num_kv_heads = config.num_kv_heads,
                        .head_dim = config.head_dim,
                        .block_size = options.block_size,
                        .type = options.kv_type.value_or(KvTypeOf(config))};
  WorkerLimits limits{.max_sequences = options.max_sequences,
                      .max_tokens_per_step = options.max_tokens_per_step,
                      .max_context_tokens = config.max_position_embeddings,
                      .vocab_size = config.vocab_size,
                      .block_size = options.block_size,
                      .num_blocks = 0};
  QUIRE_ASSIGN_OR_RETURN(limits.num_blocks, PlanPool(options.pool, layout, limits, AvailableHostMemory()));
  const int full_context = limits.BlocksFor(limits.max_context_tokens);
  if (limits.num_blocks < static_cast<uint32_t>(full_context)) {
    QUIRE_LOG(kWarning) << "the pool has " << limits.num_blocks << " blocks; a sequence of the model's full context, "
                        << limits.max_context_tokens << " tokens, needs " << full_context;
  }
  QUIRE_ASSIGN_OR_RETURN(storage_, BlockStorage::Create(backend_.get(), layout, limits.num_blocks, options.prefault));
  QUIRE_ASSIGN_OR_RETURN(executor_,
                         Executor::Create(backend_.get(), model_.get(), storage_.get(), limits, LogitRowsFor(limits)));
  return absl::OkStatus();
}

absl::Status Worker::Listen(const WorkerOptions& options) {
  const KvLayout& layout = storage_->layout();
  const WorkerLimits& limits = executor_->limits();
  if (!options.metrics_listen.empty()) {
    const auto metrics =
        std::make_shared<WorkerMetrics>(&stats_, MetricsInfo{.version = kVersion,
                                                             .model_name = options.model_name,
                                                             .device = backend_->Description(),
                                                             .num_blocks = limits.num_blocks,
                                                             .block_bytes = layout.block_bytes_all_layers(),
                                                             .block_size = limits.block_size,
                                                             .max_sequences = limits.max_sequences});
    QUIRE_ASSIGN_OR_RETURN(metrics_, WorkerMetricsServer::Start(options.metrics_listen, metrics));
  }
  loop_ = std::make_unique<SessionLoop>(executor_.get(), &stats_);
  service_ = std::make_unique<WorkerService>(MakeDescription(options.model_name, *model_, *backend_, layout, limits),
                                             loop_.get());
  QUIRE_ASSIGN_OR_RETURN(server_, WorkerServer::Start(options.listen, service_.get()));
  return absl::OkStatus();
}

std::string Worker::Summary() const {
  const KvLayout& layout = storage_->layout();
  std::string text = absl::StrCat(
      "quire-worker ", kVersion, "\n  model   ", model_name_, " (", model_->config.architecture, ", ",
      model_->config.num_layers, " layers, context ", model_->config.max_position_embeddings, ")\n  device  ",
      backend_->Description(), "\n  pool    ", storage_->num_blocks(), " blocks of ", layout.block_size, " tokens, ",
      FormatBytes(static_cast<int64_t>(storage_->pool_bytes())), " ", Name(layout.type), "\n");
  if (metrics_ != nullptr) absl::StrAppend(&text, "metrics on port ", metrics_->port(), "\n");
  absl::StrAppend(&text, "listening on ", server_->address(), "\n");
  return text;
}

}  // namespace quire
