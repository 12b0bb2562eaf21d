// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_RANK_STATE_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_RANK_STATE_H_

#include <memory>
#include <string>
#include <vector>

namespace quire {

// One rank of a worker, for operators.
struct RankState {
  std::string address = "";
  bool is_ready = false;        // It has joined the session of the group.
  bool is_refused = false;      // It refuses the session. See last_error.
  std::string last_error = "";  // Why it has ended the last attempt or session. Empty: it has not.
  std::string device = "";      // Empty: it has not described itself.
};

// By rank. Null for a worker with a whole model.
using RankStates = std::shared_ptr<const std::vector<RankState>>;

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_RANK_STATE_H_
