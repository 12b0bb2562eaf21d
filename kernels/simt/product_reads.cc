// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/product_reads.h"

#include <algorithm>

namespace quire::simt {

ProductReads::ProductReads(size_t shared_bytes, const BarrierClock* clock)
    : num_chunks_((shared_bytes + kChunkBytes - 1) / kChunkBytes),
      num_groups_((clock->num_warps() + kWarpsPerGroup - 1) / kWarpsPerGroup),
      clock_(clock) {}

void ProductReads::Reset() {
  reads_.clear();
}

void ProductReads::Begin(size_t offset, int group, Place place) {
  if (reads_.empty()) reads_.resize(num_chunks_ * num_groups_);
  Read& read = reads_[offset / kChunkBytes * num_groups_ + group];
  ++read.num_pending;
  read.place = place;
}

void ProductReads::End(size_t offset, int group) {
  Read& read = reads_[offset / kChunkBytes * num_groups_ + group];
  --read.num_pending;
  read.stamp = clock_->now();
}

const Place* ProductReads::FindCollision(size_t offset, size_t bytes, const Accessor& by) const {
  if (reads_.empty()) return nullptr;
  for (size_t chunk = offset / kChunkBytes; chunk * kChunkBytes < offset + bytes; ++chunk) {
    for (size_t group = 0; group < num_groups_; ++group) {
      const Read& read = reads_[chunk * num_groups_ + group];
      bool is_before = read.num_pending == 0;
      for (int i = 0; i < kWarpsPerGroup && is_before && read.stamp > 0; ++i) {
        is_before = read.stamp < clock_->products_seen(by.warp(), int(group) * kWarpsPerGroup + i);
      }
      if (!is_before) return &read.place;
    }
  }
  return nullptr;
}

}  // namespace quire::simt
