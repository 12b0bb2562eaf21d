// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MATMUL_TUNER_H_
#define QUIRE_KERNELS_CUDA_MATMUL_TUNER_H_

#include <cublasLt.h>

#include <optional>

#include "kernels/cuda/matmul_cache.h"
#include "kernels/cuda/matmul_problem.h"

namespace quire::cuda {

// Chooses algorithms by running them on its own x and y and the caller's w. Waits for the stream; not usable while
// recording.
class MatmulTuner {
 public:
  // `workspace` has kWorkspaceBytes; `l2_bytes` is the size of the second-level cache.
  MatmulTuner(cublasLtHandle_t handle, cudaStream_t stream, void* workspace, size_t l2_bytes)
      : handle_(handle), stream_(stream), workspace_(workspace), l2_bytes_(l2_bytes) {}

  // Returns the fastest of the library's first suggestions, or nothing when there are none or no memory to try them.
  std::optional<cublasLtMatmulAlgo_t> Fastest(const MatmulShape& shape, const MatmulScales& scales,
                                              const void* w) const;

  // Returns the first of the library's suggestions for few rows whose results, in a trial with this w, depend neither
  // on the number of rows nor on the place of a row among them. The trial is in float32, or in the type of y for an
  // algorithm that has no results in float32. `shape.num_rows` is ignored. Returns nothing when there is none.
  std::optional<cublasLtMatmulAlgo_t> IndependentOfRows(MatmulShape shape, const void* w) const;

 private:
  struct Trial;

  // Returns the median time in seconds of one multiplication with w not in the cache; infinity when it cannot run.
  double Time(MatmulProblem* problem, const cublasLtMatmulAlgo_t& algorithm, const void* w, const Trial& trial) const;
  bool IsIndependentOfRows(const MatmulShape& shape, const cublasLtMatmulAlgo_t& algorithm, const void* w,
                           const Trial& trial) const;
  // Returns the last num_rows rows of x times w as bytes; empty when it cannot run. `shape` has all rows.
  std::vector<char> LastRows(MatmulShape shape, int num_rows, const cublasLtMatmulAlgo_t& algorithm, const void* w,
                             const Trial& trial) const;

  const cublasLtHandle_t handle_;
  const cudaStream_t stream_;
  void* const workspace_;
  const size_t l2_bytes_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_TUNER_H_
