#ifndef QUIRE_TESTS_WORKER_TEST_WORKER_H_
#define QUIRE_TESTS_WORKER_TEST_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/worker/gated_backend.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/model.h"
#include "worker/worker_limits.h"

namespace quire {

// Whether the environment has QUIRE_TEST_DEVICE=emulated: the tests of the executor then run on the backend for GPUs,
// exact, on the emulated device. On the CPU otherwise.
bool IsGpuEmulated();

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
  const Model& model() const { return *model_; }
  const KvLayout& layout() const { return storage_->layout(); }
  const WorkerLimits& limits() const { return limits_; }
  Executor& executor() { return *executor_; }

 private:
  GatedBackend backend_;
  std::unique_ptr<Model> model_;
  WorkerLimits limits_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_TEST_WORKER_H_
