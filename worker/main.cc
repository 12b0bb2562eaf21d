// SPDX-License-Identifier: Apache-2.0

// quire-worker owns the weights of a model and its KV blocks, and runs the plans of the manager.

#include "base/configuration.h"
#include "serving/service_main.h"
#include "worker/options.h"
#include "worker/worker.h"

int main(int argc, char** argv) {
  return quire::RunService<quire::Worker>(
      "quire-worker",
      quire::ParseWorkerCommandLine({argv + 1, static_cast<size_t>(argc - 1)}, quire::ProcessEnvironment()));
}
