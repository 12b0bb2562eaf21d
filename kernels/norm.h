#ifndef QUIRE_KERNELS_NORM_H_
#define QUIRE_KERNELS_NORM_H_

namespace quire {

// y = x / sqrt(mean(x^2) + epsilon) * weight over rows of `dim`; y may be x.
struct RmsNormArgs {
  const void* x;        // [num_rows, dim]
  const float* weight;  // [dim]
  void* y;              // [num_rows, dim]
  int num_rows;
  int dim;
  float epsilon;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_NORM_H_
