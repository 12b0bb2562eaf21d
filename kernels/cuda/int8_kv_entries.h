// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_INT8_KV_ENTRIES_H_
#define QUIRE_KERNELS_CUDA_INT8_KV_ENTRIES_H_

#include "kernels/cuda/entry_apart.h"

// Compiles the kernels for K and V of int8 with queries of one element type.

#define QUIRE_INT8_KV_ENTRIES_OF(Element, kHeadDim)                                                   \
  template const void* EntryApart<AttentionDecode<Int8Kv<Element>, UnitSize::kFull, kHeadDim, 3>>();  \
  template const void* EntryApart<AttentionPrefill<Int8Kv<Element>, UnitSize::kFull, kHeadDim, 2>>(); \
  template const void* EntryApart<RopeAppendKernel<Int8Kv<Element>, UnitSize::kFull, kHeadDim>>();

#define QUIRE_INT8_KV_ENTRIES(Element)  \
  QUIRE_INT8_KV_ENTRIES_OF(Element, 32) \
  QUIRE_INT8_KV_ENTRIES_OF(Element, 64) \
  QUIRE_INT8_KV_ENTRIES_OF(Element, 80) \
  QUIRE_INT8_KV_ENTRIES_OF(Element, 96) \
  QUIRE_INT8_KV_ENTRIES_OF(Element, 128)

#endif  // QUIRE_KERNELS_CUDA_INT8_KV_ENTRIES_H_
