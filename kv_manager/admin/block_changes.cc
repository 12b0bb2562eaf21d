// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/block_changes.h"

#include <cstddef>

namespace quire {
namespace {

// The bytes of a changed block in a message: its id and its state. A snapshot has one byte per block.
constexpr size_t kDeltaBytes = 5;

}  // namespace

std::optional<v1::WatchBlocksResponse> EncodeBlocks(const PoolSnapshot& before, const PoolSnapshot& now) {
  if (!now.is_ready) return std::nullopt;
  const bool is_continued = before.is_ready && before.epoch == now.epoch && before.states.size() == now.states.size();
  if (is_continued && before.step == now.step && before.states == now.states) return std::nullopt;
  v1::WatchBlocksResponse response;
  response.set_worker(now.worker);
  response.set_epoch(now.epoch);
  response.set_step(now.step);
  bool is_delta = is_continued;
  if (is_delta) {
    v1::BlockDelta* const delta = response.mutable_delta();
    for (size_t i = 0; i < now.states.size() && is_delta; ++i) {
      if (before.states[i] == now.states[i]) continue;
      delta->add_blocks(static_cast<uint32_t>(i));
      delta->mutable_states()->push_back(now.states[i]);
      is_delta = delta->states().size() * kDeltaBytes <= now.states.size();
    }
  }
  if (is_delta) return response;
  v1::BlockSnapshot* const snapshot = response.mutable_snapshot();
  snapshot->set_states(now.states);
  snapshot->set_block_size(now.block_size);
  return response;
}

}  // namespace quire
