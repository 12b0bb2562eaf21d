// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SUM_TOLERANCE_H_
#define QUIRE_KERNELS_CUDA_SUM_TOLERANCE_H_

#include <vector>

namespace quire::cuda {

// The bounds below say how far a sum that a device computes may be from the exact sum of the same products. They follow
// from the products, which are listed in the order in which the device adds them.
constexpr double kFloat32Roundoff = 0x1p-24;  // The largest relative error of rounding to float32.

// Returns the tolerance for products of weights with inputs of 16 bits, which are exact. Tensor cores add them in
// float32. They cut off what is behind the last place of the largest of some addends, which is less than 2^-23 of it,
// so a step of 32 columns loses
//   33 * 2^-23 * L,
// where L is the largest magnitude of a partial sum: the 33 addends are the products and the sum so far. An addition
// that rounds loses half of that. The order within a step does not matter, and the sum may begin at any step. Each
// group of `group` columns is a sum of its own. The groups, and the splits of the columns, are joined by at most one
// rounded addition for each step, which loses 2^-24 of the largest partial sum of all columns. REQUIRES: `group` is a
// multiple of 32, or at least the number of products.
double Float32SumTolerance(const std::vector<double>& products, int group);

// Returns the tolerance for products of FP8. In a step of 32 columns, tensor cores cut off from each addend what is
// 2^-13 or less of the largest product and of the sum so far. After at most 128 columns, the sum is added to others in
// float32, and this addition loses 2^-24 of the largest partial sum. A sum is multiplied by two scales, which loses
// 2^-24 of it twice. This also holds with scales of 128 columns, because their products have the same factor.
double Fp8SumTolerance(const std::vector<double>& products);

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SUM_TOLERANCE_H_
