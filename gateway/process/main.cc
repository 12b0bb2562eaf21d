// SPDX-License-Identifier: Apache-2.0

// quire-openai: the OpenAI interface over HTTP in front of a manager.

#include "base/configuration.h"
#include "gateway/process/gateway.h"
#include "gateway/process/options.h"
#include "serving/service_main.h"

int main(int argc, char** argv) {
  return quire::RunService<quire::Gateway>(
      "quire-openai",
      quire::ParseGatewayCommandLine({argv + 1, static_cast<size_t>(argc - 1)}, quire::ProcessEnvironment()));
}
