#include "kv_manager/placement.h"

#include <tuple>

namespace quire {
namespace {

// Smaller is better.
std::tuple<int64_t, int> Rank(const WorkerLoad& worker) {
  return {worker.wanted_blocks - worker.num_free_blocks, worker.num_requests};
}

}  // namespace

int BlocksWanted(int num_prompt_tokens, int block_size) {
  return num_prompt_tokens / block_size + 1;
}

std::optional<int> ChooseWorker(absl::Span<const WorkerLoad> workers) {
  std::optional<int> best;
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    if (!workers[i].is_ready) continue;
    if (!best.has_value() || Rank(workers[i]) < Rank(workers[*best])) best = i;
  }
  return best;
}

}  // namespace quire
