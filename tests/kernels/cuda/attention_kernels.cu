// The attention kernels as device code, with the shapes of common models. The build fails when one of them spills.

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_prefill.h"

namespace quire::cuda {

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 2) Run(const __grid_constant__ AttentionArgs args) {
  Kernel::Run(args);
}

template <typename Element, UnitSize kSize, int kHeadDim>
void Instantiate(const AttentionArgs& args) {
  using Decode = AttentionDecode<Element, kSize, kHeadDim, 3>;
  using Prefill = AttentionPrefill<Element, kSize, kHeadDim, 2>;
  using Merge = AttentionMergeKernel<Element, kHeadDim>;
  Run<Decode><<<1, Decode::kThreads, Decode::kSharedBytes>>>(args);
  Run<Prefill><<<1, Prefill::kThreads, Prefill::kSharedBytes>>>(args);
  Run<Merge><<<1, Merge::kThreads, Merge::kSharedBytes>>>(args);
}

template void Instantiate<Bf16, UnitSize::kFull, 64>(const AttentionArgs&);
template void Instantiate<Bf16, UnitSize::kFull, 80>(const AttentionArgs&);
template void Instantiate<Bf16, UnitSize::kFull, 96>(const AttentionArgs&);
template void Instantiate<Bf16, UnitSize::kFull, 128>(const AttentionArgs&);
template void Instantiate<F16, UnitSize::kFull, 128>(const AttentionArgs&);
template void Instantiate<Bf16, UnitSize::kFull, 256>(const AttentionArgs&);
template void Instantiate<Bf16, UnitSize::kSmall, 128>(const AttentionArgs&);
template void Instantiate<Bf16, UnitSize::kSmall, 64>(const AttentionArgs&);

}  // namespace quire::cuda
