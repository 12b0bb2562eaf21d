#ifndef QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_JSON_H_
#define QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_JSON_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/admin/loop_look.h"
#include "kv_manager/engine/manager_engine.h"

// What the status page is told, as JSON. Pure functions.

namespace quire {

// However large pools are and however many workers and requests there are, a status has no more than this.
inline constexpr int kMaxShownWorkers = 64;
inline constexpr int kMaxShownRequests = 200;
inline constexpr int kMaxMapCells = 16'384;  // Of all workers together, and of one a quarter.

// One look at everything.
struct StatusLook {
  ManagerStatus manager;
  std::vector<BlockLook> blocks;         // Of the workers shown: the first kMaxShownWorkers of `manager`.
  std::vector<ListedRequests> requests;  // Of the same.
};

// The names of requests, or why their readers are not told anything of single requests.
struct ShownNames {
  absl::flat_hash_map<RequestId, std::string> names = {};
  std::string why_not = {};  // Empty: they are.
};

// Blocks drawn as `quirectl blocks --map` does: a letter for each or, where there are more than `max_cells`, for each
// group of so many: the state that most of them have, of equally frequent ones the later one.
struct MapCells {
  std::string letters;
  int blocks_per_cell = 1;
  std::vector<int> counts;  // Blocks in each state, BlockState::kFree first.
};
MapCells DrawMapCells(absl::string_view states, int max_cells);

std::string EncodeStatusJson(const StatusLook& look, const ShownNames& names);

// Of a block, with the names of its owners.
std::string EncodeBlockJson(const DescribedBlock& block, const ShownNames& names);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_JSON_H_
