// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_RANK_SUMS_H_
#define QUIRE_KERNELS_CUDA_RANK_SUMS_H_

#include <cstddef>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/rank_sums.h"

namespace quire::cuda {

// The operations of kernels/rank_sums.h on a GPU. Without `exact`, the library of the device adds the sums of the
// ranks, in an order of its own. Otherwise they are gathered, and a kernel adds them in the order of the tree. Owned by
// the executor thread.
class CudaRankSums {
 public:
  // Both must outlive this object.
  CudaRankSums(Device* device, const KernelTable* kernels, bool exact);

  // Sets the group of the calls below, or null for none: then the columns of this rank stand for those of every rank,
  // and the sums of the other ranks are left out. Returns an error if the devices of the ranks cannot reach each other.
  BackendStatus SetGroup(Collective* group);

  void Run(const AddPartsArgs& args);
  void Run(const quire::GatherColumnsArgs& args);

 private:
  void AllGather(const void* from, size_t bytes, int num_ranks, void* to);
  // Launches JoinColumnsKernel. Sizes are in bytes.
  void JoinColumns(const void* x, size_t x_stride, size_t part_bytes, int num_rows, size_t bytes, size_t y_stride,
                   void* y);

  Device* const device_;
  const KernelTable& kernels_;
  const bool exact_;
  bool has_group_ = false;
  DeviceBuffer sent_;      // [num_rows, columns of a rank]
  DeviceBuffer received_;  // Of all ranks.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_RANK_SUMS_H_
