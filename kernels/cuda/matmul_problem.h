// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MATMUL_PROBLEM_H_
#define QUIRE_KERNELS_CUDA_MATMUL_PROBLEM_H_

#include <cublasLt.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/matmul_cache.h"

namespace quire::cuda {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint32_t kMatmulAlignment = 16;  // Alignment of x, w and y, in bytes.

// The scales of x and w in products of FP8 (Fp8MatmulArgs). Both are on the device.
struct MatmulScales {
  const float* x = nullptr;
  const float* w = nullptr;
};

// A multiplication in the terms of cuBLASLt, whose matrices are stored by columns. Our y, stored by rows, is its y^T.
// Therefore it computes y^T [num_columns, num_rows] = w x^T. In its order, our w is the transpose of its first factor.
class MatmulProblem {
 public:
  // A row of y begins y_stride elements after the row before. Products of FP8 need scales: all functions want their
  // addresses, and Run reads them.
  MatmulProblem(const MatmulShape& shape, int y_stride, const MatmulScales& scales = {});
  explicit MatmulProblem(const MatmulShape& shape) : MatmulProblem(shape, shape.num_columns) {}

  // Returns the library's suggestions, the best first, at most `count`. There are none for numbers of FP8 if the
  // library does not know their scales. All of them add in float32, or in 32 bits if the numbers are whole, including
  // those that cut the depth and join the parts (allows_split).
  std::vector<cublasLtMatmulAlgo_t> Candidates(cublasLtHandle_t handle, int count, bool allows_split);
  // Returns whether the algorithm can compute this problem.
  bool Fits(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm);
  // Queues the multiplication. `workspace` has kWorkspaceBytes.
  cublasStatus_t Run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, const void* x, const void* w,
                     void* y, void* workspace, cudaStream_t stream);

 private:
  void SetScales(const MatmulScales& scales);

  const bool adds_to_y_;
  const MatmulNumbers numbers_;
  bool is_known_ = true;  // The library knows all attributes.
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t w_, x_, y_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_PROBLEM_H_
