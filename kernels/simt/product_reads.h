// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_PRODUCT_READS_H_
#define QUIRE_KERNELS_SIMT_PRODUCT_READS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/access_history.h"

namespace quire::simt {

constexpr int kWarpsPerGroup = 4;
constexpr int kWarpGroupThreads = kWarpsPerGroup * kWarpSize;

// The reads of shared memory by products of warp groups, in chunks of 16 bytes. They last from the product to the wait
// for it. Nobody may write to a chunk before the wait, and after that only who knows of the wait of all four warps.
class ProductReads {
 public:
  static constexpr size_t kChunkBytes = 16;

  ProductReads(size_t shared_bytes, const BarrierClock* clock);

  void Reset();
  void Begin(size_t offset, int group, Place place);
  // The group has waited. `offset` is the value of Begin.
  void End(size_t offset, int group);

  // Returns the place of a read that is not ordered before a write to [offset, offset + bytes), or null.
  const Place* FindCollision(size_t offset, size_t bytes, const Accessor& by) const;

 private:
  struct Read {
    uint32_t stamp = 0;       // When the group last waited; 0 means never.
    int32_t num_pending = 0;  // Products that the group has not waited for.
    Place place;
  };

  size_t num_chunks_;
  size_t num_groups_;
  const BarrierClock* clock_;
  std::vector<Read> reads_;  // [num_chunks][num_groups]; empty until the first product of the block.
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_PRODUCT_READS_H_
