// The sampling kernel as device code. At 64 registers, all that 1024 threads have, sm_90 spills one of them.

#include "kernels/cuda/sampling_kernel.h"

namespace quire::cuda {

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) Run(const __grid_constant__ SamplingKernelArgs args) {
  Kernel::Run(args);
}

template __global__ void Run<SamplingKernel<1024>>(const __grid_constant__ SamplingKernelArgs args);

}  // namespace quire::cuda
