// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_QUANTIZED_ENTRIES_H_
#define QUIRE_KERNELS_CUDA_QUANTIZED_ENTRIES_H_

#include "kernels/cuda/compiled_table.h"

// Compiles the kernels for quantized weights of one element type.

namespace quire::cuda {

template <typename K>
const void* QuantizedEntry() {
  return reinterpret_cast<const void*>(&RunKernel<K>);
}

}  // namespace quire::cuda

#define QUIRE_QUANTIZED_ENTRIES_OF(Element, Values)                                  \
  template const void* QuantizedEntry<QuantizedProductKernel<Element, Values, 1>>(); \
  template const void* QuantizedEntry<QuantizedProductKernel<Element, Values, 2>>(); \
  template const void* QuantizedEntry<QuantizedProductKernel<Element, Values, 4>>(); \
  template const void* QuantizedEntry<QuantizedProductKernel<Element, Values, 8>>(); \
  template const void* QuantizedEntry<DequantizeKernel<Element, Values>>();

#define QUIRE_QUANTIZED_ENTRIES(Element)          \
  QUIRE_QUANTIZED_ENTRIES_OF(Element, Int4Values) \
  QUIRE_QUANTIZED_ENTRIES_OF(Element, Int8Values) \
  QUIRE_QUANTIZED_ENTRIES_OF(Element, Fp8Values)  \
  template const void* QuantizedEntry<SplitSumKernel<Element>>();

#endif  // QUIRE_KERNELS_CUDA_QUANTIZED_ENTRIES_H_
