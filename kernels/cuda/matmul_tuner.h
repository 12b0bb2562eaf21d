#ifndef QUIRE_KERNELS_CUDA_MATMUL_TUNER_H_
#define QUIRE_KERNELS_CUDA_MATMUL_TUNER_H_

#include <cublasLt.h>

#include <optional>

#include "kernels/cuda/matmul_cache.h"
#include "kernels/cuda/matmul_problem.h"

namespace quire::cuda {

// Chooses algorithms by running them: x and y of its own, the caller's w. Waits for the stream; not for recordings.
class MatmulTuner {
 public:
  // `workspace` has kWorkspaceBytes; `l2_bytes` is the size of the second-level cache.
  MatmulTuner(cublasLtHandle_t handle, cudaStream_t stream, void* workspace, size_t l2_bytes)
      : handle_(handle), stream_(stream), workspace_(workspace), l2_bytes_(l2_bytes) {}

  // The fastest of the library's first guesses. Nothing when there are none, or no memory to try them.
  std::optional<cublasLtMatmulAlgo_t> Fastest(const MatmulShape& shape, const void* w) const;

  // The first of the library's guesses for few rows whose results did not depend, in a trial with this w, on the number
  // of rows nor on the place of a row among them. `shape.num_rows` is not looked at. Nothing when there is none.
  std::optional<cublasLtMatmulAlgo_t> IndependentOfRows(MatmulShape shape, const void* w) const;

 private:
  struct Trial;

  // Seconds of one multiplication with w not in the cache, the median of some. Infinity when it cannot run.
  double Time(MatmulProblem* problem, const cublasLtMatmulAlgo_t& algorithm, const void* w, const Trial& trial) const;
  bool IsIndependentOfRows(const MatmulShape& shape, const cublasLtMatmulAlgo_t& algorithm, const void* w,
                           const Trial& trial) const;
  // The last num_rows rows of x times w, as bytes; empty when it cannot run. `shape` has all rows.
  std::vector<char> LastRows(MatmulShape shape, int num_rows, const cublasLtMatmulAlgo_t& algorithm, const void* w,
                             const Trial& trial) const;

  const cublasLtHandle_t handle_;
  const cudaStream_t stream_;
  void* const workspace_;
  const size_t l2_bytes_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_TUNER_H_
