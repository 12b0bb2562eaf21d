// SPDX-License-Identifier: Apache-2.0

// quire-worker owns the weights of a model and its KV blocks, and runs the plans of the manager.

#include <string>
#include <vector>

#include "base/configuration.h"
#include "serving/service_main.h"
#include "worker/options.h"
#include "worker/rank_supervisor.h"
#include "worker/worker.h"

int main(int argc, char** argv) {
  auto line = quire::ParseWorkerCommandLine({argv + 1, static_cast<size_t>(argc - 1)}, quire::ProcessEnvironment());
  if (line.ok() && !line->text && line->options.num_ranks > 1) {
    quire::WorkerOptions& options = line->options;
    const quire::RankHosts& hosts = options.rank_hosts;
    if (!options.rank) return quire::RankSupervisor(options, {argv + 1, argv + argc}).Run();
    const int num_cores = quire::BindToCoresOfRank(*options.rank - hosts.first_rank, hosts.num_ranks);
    if (options.threads == 0) options.threads = num_cores;
  }
  return quire::RunService<quire::Worker>("quire-worker", line);
}
