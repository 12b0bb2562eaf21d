#include "tests/worker/test_worker.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/open_device.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  QUIRE_CHECK(value.ok()) << value.status();
  return *std::move(value);
}

}  // namespace

std::unique_ptr<Backend> TestWorker::MakeBackend(bool repeats_layers) {
  if (DeviceOfTests() == TestDevice::kCpu) return MakeCpuBackend(1);
  return std::make_unique<cuda::CudaBackend>(MakeGpu(),
                                             cuda::CudaBackendOptions{.exact = true, .graphs = repeats_layers});
}

std::unique_ptr<cuda::Device> TestWorker::MakeGpu() {
  if (DeviceOfTests() == TestDevice::kEmulatedGpu) {
    auto device = std::make_unique<cuda::EmulatedDevice>();
    device_ = device.get();
    return device;
  }
  std::string why_not;
  auto device = cuda::OpenDevice(GpuLibraryOfTests(), {.exact = true, .longest_wait = std::chrono::hours(1)}, &why_not);
  QUIRE_CHECK(device != nullptr) << why_not;
  return device;
}

TestWorker::TestWorker(const TestWorkerOptions& options) : backend_(MakeBackend(options.repeats_layers)) {
  const std::string default_model = TestsGpuBackend() ? "yarn" : "llama2";
  const std::string directory =
      SourcePath("tests/golden/models/" + (options.model.empty() ? default_model : options.model));
  model_ = ValueOrDie(LoadModel(directory, &backend_));
  const ModelConfig& config = model_->config;
  limits_ = {.max_sequences = options.max_sequences,
             .max_tokens_per_step = options.max_tokens_per_step,
             .max_context_tokens = config.max_position_embeddings,
             .vocab_size = config.vocab_size,
             .block_size = options.block_size,
             .num_blocks = options.num_blocks,
             .num_host_blocks = options.num_host_blocks};
  const KvLayout layout{.num_layers = config.num_layers,
                        .num_kv_heads = config.num_kv_heads,
                        .head_dim = config.head_dim,
                        .block_size = options.block_size,
                        .type = backend_.ActivationType()};
  storage_ = ValueOrDie(BlockStorage::Create(&backend_, layout, options.num_blocks, options.num_host_blocks, false));
  executor_ = ValueOrDie(Executor::Create(&backend_, model_.get(), storage_.get(), limits_, options.max_logit_rows));
}

absl::StatusOr<v1::StepResult> TestWorker::Run(const v1::StepPlan& plan) {
  v1::StepResult result;
  QUIRE_RETURN_IF_ERROR(executor_->Run(plan, &result));
  return result;
}

}  // namespace quire
