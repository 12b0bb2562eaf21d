// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_manager/admin/block_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

bool AreStates(const std::string& states) {
  return std::all_of(states.begin(), states.end(), [](char state) {
    return v1::BlockState_IsValid(static_cast<unsigned char>(state)) && state != v1::BLOCK_STATE_UNSPECIFIED;
  });
}

absl::Status CheckDelta(const v1::BlockDelta& delta, size_t num_blocks) {
  const auto& blocks = delta.blocks();
  if (static_cast<size_t>(blocks.size()) != delta.states().size() || !AreStates(delta.states())) {
    return absl::DataLossError(
        absl::StrCat(blocks.size(), " changed blocks have ", delta.states().size(), " states, or unknown ones"));
  }
  const auto beyond = std::find_if(blocks.begin(), blocks.end(), [&](uint32_t block) { return block >= num_blocks; });
  if (beyond == blocks.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("block ", *beyond, " of a pool of ", num_blocks, " has changed"));
}

}  // namespace

absl::Status BlockMap::Apply(const v1::WatchBlocksResponse& message) {
  if (message.has_snapshot()) {
    if (!AreStates(message.snapshot().states())) return absl::DataLossError("a snapshot has unknown states");
    states_ = message.snapshot().states();
    block_size_ = message.snapshot().block_size();
    has_snapshot_ = true;
  } else {
    if (!has_snapshot_ || message.epoch() != epoch_) {
      return absl::DataLossError(absl::StrCat("changes of epoch ", message.epoch(), " come without a snapshot"));
    }
    if (absl::Status status = CheckDelta(message.delta(), states_.size()); !status.ok()) return status;
    for (int i = 0; i < message.delta().blocks_size(); ++i) {
      states_[message.delta().blocks(i)] = message.delta().states()[i];
    }
  }
  epoch_ = message.epoch();
  step_ = message.step();
  return absl::OkStatus();
}

}  // namespace quire
