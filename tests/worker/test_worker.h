// SPDX-License-Identifier: Apache-2.0

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
  // The name of a model in tests/golden/models. These have 2 layers, a vocabulary of 96 tokens, a context of 256 and
  // float32 weights. "random" is a random model with heads of 32 and a context of 512. If empty, it is "llama2" on the
  // CPU. The emulated GPU has no kernels for heads of 8, so there it is "yarn", with heads of 16. On a GPU it is
  // "random". The simulated device reads only its config.json.
  std::string model = "";
  int block_size = 4;
  uint32_t num_blocks = 64;
  uint32_t num_host_blocks = 0;
  int max_sequences = 4;
  int max_tokens_per_step = 64;
  int max_logit_rows = 64;
  int rank = 0;  // Of num_ranks. The caller sets the group.
  int num_ranks = 1;
  bool repeats_layers = true;  // CudaBackendOptions::graphs
  bool can_record = true;      // Otherwise the emulated GPU has no memory for what it has recorded.
};

// A tiny model with a pool and an executor. It uses no network.
class TestWorker {
 public:
  explicit TestWorker(const TestWorkerOptions& options = {});

  // Runs one plan and returns its result.
  absl::StatusOr<v1::StepResult> Run(const v1::StepPlan& plan);

  GatedBackend& backend() { return backend_; }
  // The emulated GPU, or null if another device computes.
  const cuda::EmulatedDevice* device() const { return device_; }
  const Model& model() const { return *model_; }
  const KvLayout& layout() const { return storage_->layout(); }
  const WorkerLimits& limits() const { return limits_; }
  Executor& executor() { return *executor_; }

 private:
  std::unique_ptr<Backend> MakeBackend(const TestWorkerOptions& options);
  std::unique_ptr<Model> MakeModel(const TestWorkerOptions& options);
  std::unique_ptr<cuda::Device> MakeGpu(bool can_record);  // Sets device_ if the GPU is the emulated one.

  const cuda::EmulatedDevice* device_ = nullptr;  // Owned by the backend.
  GatedBackend backend_;
  std::unique_ptr<Model> model_;
  WorkerLimits limits_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_TEST_WORKER_H_
