#ifndef QUIRE_KERNELS_CUDA_PAGED_ATTENTION_H_
#define QUIRE_KERNELS_CUDA_PAGED_ATTENTION_H_

#include <cuda_runtime_api.h>

#include "kernels/paged_attention.h"

namespace quire {

// paged_attention.h on the current CUDA device, sm_80 or newer: all arrays in its memory, bfloat16 or float16, heads of
// 32, 64, 80, 96, 128 or 256, at most 64 query heads per KV head, `out` aligned to 4 bytes. Any alignment of the
// others, and gaps between rows; caches whose rows begin at multiples of 16 bytes are the fastest.
//
// The work is queued on `stream` (null: the default stream), after it has been waited for once: the tables are read
// back to be checked and planned. So it cannot be captured into a graph. What fails in a kernel shows in later calls of
// CUDA. Rows without a context become zeros. Thread-safe.
PagedAttentionStatus paged_attention_cuda_forward(const PagedAttentionArgs& args, cudaStream_t stream);

}  // namespace quire

#endif  // QUIRE_KERNELS_CUDA_PAGED_ATTENTION_H_
