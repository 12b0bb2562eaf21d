// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_BLOCK_CHANGES_H_
#define QUIRE_KV_MANAGER_ADMIN_BLOCK_CHANGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "quire/v1/inspect.pb.h"

namespace quire {

// The blocks of one worker at one moment.
struct PoolSnapshot {
  std::string worker = {};
  bool is_ready = false;  // If false, the other fields are not set.
  uint64_t epoch = 0;
  uint64_t step = 0;
  int block_size = 0;
  std::string states = {};  // [num_blocks], one byte each: a BlockState.
};

// The message for a client that was told `before`: the changes since, or a snapshot when that is smaller or when the
// session is another one. Returns nothing when the worker is not ready or nothing has changed.
std::optional<v1::WatchBlocksResponse> EncodeBlocks(const PoolSnapshot& before, const PoolSnapshot& now);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_BLOCK_CHANGES_H_
