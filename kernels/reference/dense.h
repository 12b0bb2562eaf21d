#ifndef QUIRE_KERNELS_REFERENCE_DENSE_H_
#define QUIRE_KERNELS_REFERENCE_DENSE_H_

#include <vector>

// Naive versions of the dense operations in double, row-major and one element at a time: what the backends are tested
// against. Used by tests only.
namespace quire::reference {

// y[rows_x, rows_w] = x[rows_x, cols] * w[rows_w, cols]^T.
std::vector<double> Linear(const std::vector<double>& x, const std::vector<double>& w, int cols);

// x / sqrt(mean(x^2) + epsilon) * weight over rows as long as the weight.
std::vector<double> RmsNorm(const std::vector<double>& x, const std::vector<double>& weight, double epsilon);

// silu(x[:, :dim]) * x[:, dim:] for rows of 2 * dim.
std::vector<double> SiluMul(const std::vector<double>& x, int dim);

// Rotates the first 2 * inv_freq.size() dimensions of one head by its position, pairing i with i + half.
void Rotate(int position, const std::vector<double>& inv_freq, double scaling, double* head);

// softmax(q k^T * scale) v for one query over tokens [begin, end); k and v are [tokens, head_dim].
std::vector<double> Attend(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                           int begin, int end, double scale);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_DENSE_H_
