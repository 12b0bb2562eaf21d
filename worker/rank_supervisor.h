// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_RANK_SUPERVISOR_H_
#define QUIRE_WORKER_RANK_SUPERVISOR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "worker/options.h"

namespace quire {

// Binds this process to the share of its cores that one of `num_ranks` ranks of the host has. Returns the number of
// these cores. If there are fewer
// cores than ranks, nothing is bound. Call it before any thread starts.
int BindToCoresOfRank(int rank, int num_ranks);

// The process of `quire-worker --tp=N`. It starts the same program once for each rank of this host. A rank that ends is
// started again alone, while the others keep their weights; the manager then forms the group again. The first rank of
// the host prints for all. Used by the main thread.
class RankSupervisor {
 public:
  // `arguments` are those of this process, without the name of the program.
  RankSupervisor(const WorkerOptions& options, std::vector<std::string> arguments);
  ~RankSupervisor();

  // Runs until a signal stops the ranks, or until one of them cannot be started. Returns the exit code.
  int Run();

 private:
  struct Rank {
    std::unique_ptr<ChildProcess> process;
    bool is_ready = false;
    int num_failures = 0;  // Ends before it was ready, since it was ready last.
  };

  // Ranks are counted from the first one of the host here.
  void Start(int index);
  void Read(int index);
  // Waits for a line, for a signal or for a moment.
  void Watch();
  // Starts ranks again that have ended. Returns the exit code of the program if it must end.
  std::optional<int> Restart();
  void StopRanks();

  const WorkerOptions options_;
  const std::vector<std::string> arguments_;
  const std::string program_;  // Its path.
  const std::string group_id_;
  const int signals_fd_;
  bool is_stopping_ = false;
  std::vector<Rank> ranks_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_RANK_SUPERVISOR_H_
