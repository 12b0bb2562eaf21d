#ifndef QUIRE_KV_MANAGER_ADMIN_BLOCK_CHANGES_H_
#define QUIRE_KV_MANAGER_ADMIN_BLOCK_CHANGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "quire/v1/inspect.pb.h"

namespace quire {

// The blocks of one worker at one moment.
struct BlockLook {
  std::string worker = {};
  bool is_ready = false;  // If not, there is nothing to see.
  uint64_t epoch = 0;
  uint64_t step = 0;
  int block_size = 0;
  std::string states = {};  // [num_blocks]: a BlockState as one byte.
};

// What to tell somebody who was told `before`: changes, or everything where that is smaller or the session is another.
// Nothing when the worker is not ready, or when he knows it all.
std::optional<v1::WatchBlocksResponse> EncodeBlocks(const BlockLook& before, const BlockLook& now);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_BLOCK_CHANGES_H_
