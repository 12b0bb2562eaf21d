// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/test_worker.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/open_device.h"
#include "kernels/simulated/backend.h"
#include "tests/worker/model/model_files.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/safetensors_writer.h"
#include "worker/model/simulated_model.h"

namespace quire {
namespace {

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  QUIRE_CHECK(value.ok()) << value.status();
  return *std::move(value);
}

class DeviceWithoutGraphs : public cuda::EmulatedDevice {
 public:
  std::unique_ptr<cuda::Graph> EndRecording() override {
    EmulatedDevice::EndRecording();
    return nullptr;
  }
};

// Returns the directory of a random model like the models of tests/golden/models, but with heads of 32 and a context of
// 512. It is removed when the program ends.
const std::string& RandomModel() {
  static const TestDirectory directory;
  static const absl::Status status = [] {
    make_model::ModelShape shape;
    shape.head_dim = 32;
    shape.vocab = 96;
    shape.context = 512;
    directory.Write("config.json", make_model::ConfigJson(shape, Name(DataType::kFloat32)));
    return make_model::WriteRandomTensors(make_model::TensorsOf(shape), DataType::kFloat32, 1,
                                          directory.path() + "/model.safetensors");
  }();
  QUIRE_CHECK(status.ok()) << status;
  return directory.path();
}

std::string DirectoryOf(const std::string& model) {
  if (model == "random") return RandomModel();
  if (!model.empty()) return GoldenModel(model);
  if (DeviceOfTests() == TestDevice::kGpu) return RandomModel();
  return GoldenModel(TestsGpuBackend() ? "yarn" : "llama2");
}

KvType KvTypeOfTests(const Backend& backend) {
  if (DeviceOfTests() == TestDevice::kSimulated) return simulated::SimulatedBackend::kKvType;
  return DeviceOfTests() == TestDevice::kInt8KvCpu ? KvType::kInt8 : KvTypeOf(backend.ActivationType());
}

}  // namespace

std::unique_ptr<Backend> TestWorker::MakeBackend(const TestWorkerOptions& options) {
  const TestDevice device = DeviceOfTests();
  const bool rounds = device == TestDevice::kInt8KvCpu || RoundingOfTests().layers != Quantization::kNone;
  if (device == TestDevice::kCpu || rounds) return MakeCpuBackend(1);
  if (device == TestDevice::kSimulated) {
    const ModelConfig config = ValueOrDie(ReadModelConfig(DirectoryOf(options.model)));
    return std::make_unique<simulated::SimulatedBackend>(ValueOrDie(TokenRuleOf(config, /*mean_output_tokens=*/0)),
                                                         simulated::StepTimes());
  }
  return std::make_unique<cuda::CudaBackend>(MakeGpu(options.can_record),
                                             cuda::CudaBackendOptions{.exact = true, .graphs = options.repeats_layers});
}

std::unique_ptr<Model> TestWorker::MakeModel(const TestWorkerOptions& options) {
  const std::string directory = DirectoryOf(options.model);
  if (DeviceOfTests() == TestDevice::kSimulated) return ValueOrDie(ReadSimulatedModel(directory));
  return ValueOrDie(LoadModel(directory, &backend_, /*progress=*/nullptr, RoundingOfTests(), /*is_long=*/false,
                              options.rank, options.num_ranks));
}

std::unique_ptr<cuda::Device> TestWorker::MakeGpu(bool can_record) {
  if (DeviceOfTests() == TestDevice::kEmulatedGpu) {
    auto device = std::make_unique<cuda::EmulatedDevice>();
    if (!can_record) device = std::make_unique<DeviceWithoutGraphs>();
    device_ = device.get();
    return device;
  }
  std::string why_not;
  cuda::DeviceOptions device_options;
  device_options.exact = true;
  device_options.longest_wait = std::chrono::hours(1);
  auto device = cuda::OpenDevice(GpuLibraryOfTests(), device_options, &why_not);
  QUIRE_CHECK(device != nullptr) << why_not;
  return device;
}

TestWorker::TestWorker(const TestWorkerOptions& options) : backend_(MakeBackend(options)) {
  model_ = MakeModel(options);
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
                        .type = KvTypeOfTests(backend_)};
  const BackendStatus supported = backend_.CheckLayout(layout, config.num_heads);
  QUIRE_CHECK(supported.ok()) << supported.message();
  storage_ = ValueOrDie(BlockStorage::Create(&backend_, layout, options.num_blocks, options.num_host_blocks, false));
  executor_ = ValueOrDie(Executor::Create(&backend_, model_.get(), storage_.get(), limits_, options.max_logit_rows));
}

absl::StatusOr<v1::StepResult> TestWorker::Run(const v1::StepPlan& plan) {
  v1::StepResult result;
  QUIRE_RETURN_IF_ERROR(executor_->Run(plan, &result));
  return result;
}

}  // namespace quire
