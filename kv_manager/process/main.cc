// SPDX-License-Identifier: Apache-2.0

// quire-manager: the scheduler and the KV memory of its workers, served over gRPC.

#include "base/configuration.h"
#include "kv_manager/process/manager.h"
#include "kv_manager/process/options.h"
#include "serving/service_main.h"

int main(int argc, char** argv) {
  return quire::RunService<quire::Manager>(
      "quire-manager",
      quire::ParseManagerCommandLine({argv + 1, static_cast<size_t>(argc - 1)}, quire::ProcessEnvironment()));
}
