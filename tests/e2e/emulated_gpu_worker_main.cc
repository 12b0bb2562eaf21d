// SPDX-License-Identifier: Apache-2.0

// quire-worker whose --device=cuda is the emulated GPU, for machines without a GPU.

#include "kernels/cuda/emulated_device.h"
#include "serving/service_main.h"
#include "worker/options.h"
#include "worker/worker.h"

namespace quire {
namespace {

struct EmulatedGpuWorker {
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options) {
    return Worker::Start(
        options, [](const std::string&, const cuda::DeviceOptions&, std::string*) -> std::unique_ptr<cuda::Device> {
          return std::make_unique<cuda::EmulatedDevice>();
        });
  }
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunService<quire::EmulatedGpuWorker>(
      "quire-worker", quire::ParseWorkerCommandLine({argv + 1, static_cast<size_t>(argc - 1)}));
}
