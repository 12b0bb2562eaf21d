// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_QUANTIZED_ENTRIES_H_
#define QUIRE_KERNELS_CUDA_QUANTIZED_ENTRIES_H_

#include "kernels/cuda/entry_apart.h"

// Compiles the kernels for quantized weights of one element type.

#define QUIRE_QUANTIZED_ENTRIES_OF(Element, Values)                              \
  template const void* EntryApart<QuantizedProductKernel<Element, Values, 1>>(); \
  template const void* EntryApart<QuantizedProductKernel<Element, Values, 2>>(); \
  template const void* EntryApart<QuantizedProductKernel<Element, Values, 4>>(); \
  template const void* EntryApart<QuantizedProductKernel<Element, Values, 8>>(); \
  template const void* EntryApart<DequantizeKernel<Element, Values>>();

// RoundKernel is RoundRowsKernel or RoundGroupsKernel.
#define QUIRE_ROUNDED_PRODUCT_ENTRIES_OF(RoundKernel, Element, Numbers)         \
  template const void* EntryApart<RoundKernel<Element, Numbers>>();             \
  template const void* EntryApart<RoundedProductKernel<Element, Numbers, 1>>(); \
  template const void* EntryApart<RoundedProductKernel<Element, Numbers, 2>>(); \
  template const void* EntryApart<RoundedProductKernel<Element, Numbers, 4>>(); \
  template const void* EntryApart<RoundedProductKernel<Element, Numbers, 8>>(); \
  template const void* EntryApart<ScaleSumsKernel<Element, Numbers>>();

#define QUIRE_QUANTIZED_ENTRIES(Element)                                  \
  QUIRE_QUANTIZED_ENTRIES_OF(Element, Int4Values)                         \
  QUIRE_QUANTIZED_ENTRIES_OF(Element, Int8Values)                         \
  QUIRE_QUANTIZED_ENTRIES_OF(Element, Fp8Values)                          \
  QUIRE_ROUNDED_PRODUCT_ENTRIES_OF(RoundRowsKernel, Element, Int8Numbers) \
  template const void* EntryApart<SplitSumKernel<Element>>();

#endif  // QUIRE_KERNELS_CUDA_QUANTIZED_ENTRIES_H_
