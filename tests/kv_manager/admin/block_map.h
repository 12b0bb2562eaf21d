// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_ADMIN_BLOCK_MAP_H_
#define QUIRE_TESTS_KV_MANAGER_ADMIN_BLOCK_MAP_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

// The blocks of one worker, followed through the messages of WatchBlocks.
class BlockMap {
 public:
  // Returns DATA_LOSS and changes nothing when the message does not fit the messages before: a change without a
  // snapshot or from another session, a block outside the pool, an unknown state.
  absl::Status Apply(const v1::WatchBlocksResponse& message);

  const std::string& states() const { return states_; }  // [num_blocks]: a v1::BlockState as one byte.
  uint64_t epoch() const { return epoch_; }
  uint64_t step() const { return step_; }
  uint32_t block_size() const { return block_size_; }  // Tokens per block.

 private:
  bool has_snapshot_ = false;
  uint64_t epoch_ = 0;
  uint64_t step_ = 0;
  uint32_t block_size_ = 0;
  std::string states_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ADMIN_BLOCK_MAP_H_
