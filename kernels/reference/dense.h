// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_REFERENCE_DENSE_H_
#define QUIRE_KERNELS_REFERENCE_DENSE_H_

#include <cmath>
#include <vector>

// Naive versions of the dense operations in double: row-major and one element at a time. Tests compare the backends
// with them; nothing else uses them.
namespace quire::reference {

// y[rows_x, rows_w] = x[rows_x, cols] * w[rows_w, cols]^T.
std::vector<double> Linear(const std::vector<double>& x, const std::vector<double>& w, int cols);

// The same in float32 and in slices, as kernels/linear.h says: products are added in ascending order of k, with one
// rounding (fused) or with two.
std::vector<float> SlicedLinear(const std::vector<float>& x, const std::vector<float>& w, int cols, int num_slices,
                                bool is_fused);
// Returns the sum of `count` slices, a power of two, as a balanced binary tree.
float AddSlices(const float* sums, int count);

// Returns x / sqrt(mean(x^2) + epsilon) * weight for rows as long as the weight.
std::vector<double> RmsNorm(const std::vector<double>& x, const std::vector<double>& weight, double epsilon);

// Returns silu(x[:, :dim]) * x[:, dim:] for rows of 2 * dim.
std::vector<double> SiluMul(const std::vector<double>& x, int dim);
// The same with 0.5 a (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) in place of silu.
std::vector<double> GeluTanhMul(const std::vector<double>& x, int dim);
// The same with the gate and up of Activation::kClampedSwiglu.
std::vector<double> ClampedSwiglu(const std::vector<double>& x, int dim);

// Returns cap * tanh(x / cap).
double Softcap(double x, double cap);

// Rotates the first 2 * inv_freq.size() dimensions of one head by its position. Dimension i is paired with i + half.
void Rotate(int position, const std::vector<double>& inv_freq, double scaling, double* head);

// Returns softmax(q k^T * scale) v for one query over the tokens [begin, end). k and v are [tokens, head_dim]. The
// scores are capped unless `softcap` is 0. The denominator has one more term, exp(sink).
std::vector<double> Attend(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                           int begin, int end, double scale, double softcap = 0, double sink = -INFINITY);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_DENSE_H_
