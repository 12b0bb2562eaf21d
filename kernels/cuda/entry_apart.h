// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ENTRY_APART_H_
#define QUIRE_KERNELS_CUDA_ENTRY_APART_H_

#include "kernels/cuda/compiled_table.h"

// Files that compile kernels apart from the tables include this and instantiate the function.
namespace quire::cuda {

template <typename K>
const void* EntryApart() {
  return reinterpret_cast<const void*>(&RunKernel<K>);
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ENTRY_APART_H_
