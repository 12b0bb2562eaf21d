#ifndef QUIRE_KERNELS_REFERENCE_QUANTIZED_H_
#define QUIRE_KERNELS_REFERENCE_QUANTIZED_H_

#include <cstdint>
#include <vector>

// The formula of products by whole numbers, one element at a time. Tests compare bits with it.
namespace quire::reference {

struct QuantizedRow {
  std::vector<int> values;  // In [-127, 127].
  float scale;
};

// Rounds a row as the kernels round their input.
QuantizedRow Quantize(const float* x, int cols);

// y[num_tokens, rows] = x * w^T, where row n of w is values[n] * scales[n].
std::vector<float> QuantizedLinear(const std::vector<float>& x, const std::vector<int8_t>& values,
                                   const std::vector<float>& scales, int cols);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_QUANTIZED_H_
