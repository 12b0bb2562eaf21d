// The attention kernels as device code, with the shapes of common models. The build fails when one of them spills.

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_prefill.h"

namespace quire::cuda {

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 2) Run(const __grid_constant__ AttentionArgs args) {
  Kernel::Run(args);
}

template <typename Element, int kBlockTokens, int kHeadDim>
void Instantiate(const AttentionArgs& args) {
  using Decode = AttentionDecode<Element, kBlockTokens, kHeadDim, 3>;
  using Prefill = AttentionPrefill<Element, kBlockTokens, kHeadDim, 2>;
  using Merge = AttentionMergeKernel<Element, kHeadDim>;
  Run<Decode><<<1, Decode::kThreads, Decode::kSharedBytes>>>(args);
  Run<Prefill><<<1, Prefill::kThreads, Prefill::kSharedBytes>>>(args);
  Run<Merge><<<1, Merge::kThreads, Merge::kSharedBytes>>>(args);
}

template void Instantiate<Bf16, 16, 64>(const AttentionArgs&);
template void Instantiate<Bf16, 16, 80>(const AttentionArgs&);
template void Instantiate<Bf16, 16, 96>(const AttentionArgs&);
template void Instantiate<Bf16, 16, 128>(const AttentionArgs&);
template void Instantiate<F16, 16, 128>(const AttentionArgs&);
template void Instantiate<Bf16, 16, 256>(const AttentionArgs&);
template void Instantiate<Bf16, 1, 128>(const AttentionArgs&);
template void Instantiate<Bf16, 8, 64>(const AttentionArgs&);

}  // namespace quire::cuda
