// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROTARY_TABLE_H_
#define QUIRE_KERNELS_CUDA_ROTARY_TABLE_H_

#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"

namespace quire::cuda {

// Cosines and sines of a rotary embedding in device memory, for all positions that were needed so far. The device must
// outlive the table.
class RotaryTable {
 public:
  // inv_freq[0, half) is in device memory and must not change.
  RotaryTable(Device* device, const float* inv_freq, int half, float scaling);

  bool Matches(const float* inv_freq, int half, float scaling) const;

  // Returns [at least num_positions][2][half] in device memory: cosines, then sines, scaled.
  const float* Get(int num_positions);

 private:
  Device* const device_;
  const float* const inv_freq_;
  const float scaling_;
  std::vector<float> frequencies_;  // Host copy of inv_freq_.
  int num_positions_ = 0;
  DeviceBuffer table_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROTARY_TABLE_H_
