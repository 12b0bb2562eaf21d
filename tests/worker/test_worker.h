#ifndef QUIRE_TESTS_WORKER_TEST_WORKER_H_
#define QUIRE_TESTS_WORKER_TEST_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/test_device.h"
#include "tests/worker/gated_backend.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/model.h"
#include "worker/worker_limits.h"

namespace quire {

struct TestWorkerOptions {
  // Below tests/golden/models: 2 layers, 96 tokens, context 256, float32. Empty: "llama2", and "yarn" on the emulated
  // GPU, which has no kernels for heads of 8.
  std::string model = "";
  int block_size = 4;
  uint32_t num_blocks = 64;
  uint32_t num_host_blocks = 0;
  int max_sequences = 4;
  int max_tokens_per_step = 64;
  int max_logit_rows = 64;
  bool repeats_layers = true;  // CudaBackendOptions::graphs
};

// A tiny model with a pool and an executor, without a network.
class TestWorker {
 public:
  explicit TestWorker(const TestWorkerOptions& options = {});

  // Runs one plan; the result, or why not.
  absl::StatusOr<v1::StepResult> Run(const v1::StepPlan& plan);

  GatedBackend& backend() { return backend_; }
  // Null on the CPU.
  const cuda::EmulatedDevice* device() const { return device_; }
  const Model& model() const { return *model_; }
  const KvLayout& layout() const { return storage_->layout(); }
  const WorkerLimits& limits() const { return limits_; }
  Executor& executor() { return *executor_; }

 private:
  std::unique_ptr<Backend> MakeBackend(bool repeats_layers);  // Sets device_.

  const cuda::EmulatedDevice* device_ = nullptr;  // Of the backend.
  GatedBackend backend_;
  std::unique_ptr<Model> model_;
  WorkerLimits limits_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_TEST_WORKER_H_
