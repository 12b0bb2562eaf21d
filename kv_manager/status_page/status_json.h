// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_JSON_H_
#define QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_JSON_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/engine/manager_engine.h"

// The JSON that the status page asks for. Pure functions.

namespace quire {

// The limits of a status, however large the pools are and however many workers and requests there are.
inline constexpr int kMaxShownWorkers = 64;
inline constexpr int kMaxShownRequests = 200;
inline constexpr int kMaxMapCells = 16'384;  // All workers share it. One worker has at most a quarter of them.

// The state of the manager and of its workers at one moment.
struct StatusSnapshot {
  ManagerStatus manager;
  std::vector<PoolSnapshot> blocks;      // The first kMaxShownWorkers of `manager` have an entry each.
  std::vector<ListedRequests> requests;  // The same workers have an entry each.
};

// The names of requests, or the reason why this reader may not see single requests.
struct ShownNames {
  absl::flat_hash_map<RequestId, std::string> names = {};
  std::string why_not = {};  // Empty: the reader may see them.
};

// Draws blocks like `quirectl blocks --map`: one letter per block or, when there are more than `max_cells`, one letter
// per group of blocks. The letter of a group is the state that most of its blocks have; of equally frequent states it
// is the later one.
struct MapCells {
  std::string letters;
  int blocks_per_cell = 1;
  std::vector<int> counts;  // Number of blocks by BlockState.
};
MapCells DrawMapCells(absl::string_view states, int max_cells);

std::string EncodeStatusJson(const StatusSnapshot& snapshot, const ShownNames& names);

// One block, with the names of its owners.
std::string EncodeBlockJson(const DescribedBlock& block, const ShownNames& names);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_STATUS_PAGE_STATUS_JSON_H_
