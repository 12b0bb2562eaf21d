// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PAGED_ATTENTION_H_
#define QUIRE_KERNELS_CUDA_PAGED_ATTENTION_H_

#include <cuda_runtime_api.h>

#include "kernels/paged_attention.h"

namespace quire {

// The function of kernels/paged_attention.h on the current CUDA device, sm_80 or newer. All arrays are in its memory,
// in bfloat16 or float16. Heads have 32, 64, 80, 96, 128 or 256 dimensions, and there are at most 64 query heads per KV
// head. `out` is aligned to 4 bytes. The other arrays may have any alignment and gaps between rows. Caches whose rows
// begin at multiples of 16 bytes are the fastest.
//
// The function waits once for `stream` (null: the default stream), because it reads the tables back to check and plan
// them. Then it queues the work on the stream. Therefore it cannot be captured into a graph. Errors inside a kernel
// show up in later CUDA calls. Rows without a context become zeros. Thread-safe.
PagedAttentionStatus paged_attention_cuda_forward(const PagedAttentionArgs& args, cudaStream_t stream);

}  // namespace quire

#endif  // QUIRE_KERNELS_CUDA_PAGED_ATTENTION_H_
