// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/block_order.h"

namespace quire::simt {

void BlockOrder::BeginBlock(int block) {
  block_ = block;
  ++num_earlier_blocks_;
  has_fenced_ = false;
  known_.clear();
}

void BlockOrder::Merge(const Releases& from, Releases* to) {
  for (const auto& [block, release] : from) {
    Release& known = to->try_emplace(block, release).first->second;
    if (known.end_stamp < release.end_stamp) known = release;
  }
}

void BlockOrder::OnAtomic(const void* p, int thread) {
  Releases& here = at_address_[p];
  Merge(here, &known_);
  if (!has_fenced_) return;
  Merge(known_, &here);
  here[block_] = {clock_->block_start(), thread};
}

bool BlockOrder::ComesAfter(const BlockAccess& earlier) const {
  if (earlier.block < 0) return true;
  const auto release = known_.find(earlier.block);
  if (release == known_.end()) return false;
  // If there were several accesses, only the last block is named. Then all earlier blocks must be known.
  const size_t num_known = known_.size() - known_.count(block_);
  if (earlier.several && num_known < static_cast<size_t>(num_earlier_blocks_)) return false;
  return earlier.stamp < release->second.end_stamp || earlier.thread == release->second.thread;
}

}  // namespace quire::simt
