// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_REFERENCE_INT8_ATTENTION_H_
#define QUIRE_KERNELS_REFERENCE_INT8_ATTENTION_H_

#include <vector>

#include "kernels/reference/quantized.h"

// The formula of attention over int8 K and V (kernels/cpu/attention_int8.h), one element at a time. Tests compare bits
// with it.
namespace quire::reference {

// K and V of one head, each rounded by Quantize: [tokens].
struct Int8Head {
  std::vector<QuantizedRow> keys;
  std::vector<QuantizedRow> values;
};

// Returns softmax(q k^T * scale) v for one query over the tokens [begin, end), in tiles of 64 tokens and splits of 512.
// Products are added with one rounding (fused) or with two.
std::vector<float> Int8Attend(const std::vector<float>& q, const Int8Head& head, int begin, int end, float scale,
                              bool is_fused);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_INT8_ATTENTION_H_
