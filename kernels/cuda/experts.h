// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_EXPERTS_H_
#define QUIRE_KERNELS_CUDA_EXPERTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/experts.h"

namespace quire::cuda {

// Mixtures of experts whose matrices have 16 bits. Which experts a token uses is known on the device alone, so the
// grids fit the largest number of items that the tokens can have, and a recorded step is valid for all choices. Owned
// by the executor thread.
class CudaExperts {
 public:
  // Both must outlive this object.
  CudaExperts(Device* device, const KernelTable* kernels);

  void Route(const RouteArgs& args);
  // REQUIRES: the matrices are not quantized.
  void Run(const ExpertMlpArgs& args);

 private:
  // The addresses of the matrices of a layer: of gate and up of all experts, and then of down.
  struct Layer {
    Layer(Device* device) : on_device(device, "addresses of experts") {}

    const Expert* w = nullptr;
    std::vector<const uint16_t*> addresses;
    DeviceBuffer on_device;
  };

  const uint16_t* const* AddressesOf(const ExpertMlpArgs& args);

  Device* const device_;
  const KernelTable& kernels_;
  std::vector<std::unique_ptr<Layer>> layers_;
  DeviceBuffer order_;        // [pairs]
  DeviceBuffer items_;        // [MostExpertItems], and then the number of items.
  DeviceBuffer gate_up_;      // [pairs, 2 * width]
  DeviceBuffer activations_;  // [pairs, width]
  DeviceBuffer outputs_;      // [pairs, dim]
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_EXPERTS_H_
