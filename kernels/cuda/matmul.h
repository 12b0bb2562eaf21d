#ifndef QUIRE_KERNELS_CUDA_MATMUL_H_
#define QUIRE_KERNELS_CUDA_MATMUL_H_

#include <cublasLt.h>

#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul_cache.h"
#include "kernels/cuda/matmul_problem.h"
#include "kernels/cuda/matmul_tuner.h"

namespace quire::cuda {

struct MatmulOptions {
  bool exact = false;
  std::string tuning_cache;  // matmul_cache.h; not used when exact.
  std::string device_name;
  size_t l2_bytes = 0;
};

// Multiplication by cuBLASLt on one stream.
//
// When not exact, the first use of a shape tries the library's guesses, which takes time and memory for another x and
// y; all numbers of rows up to a power of two share the fastest. Without that memory the library's first guess has to
// do. The order in which a row's products are added, and its last bits, depend on the number of rows and on what was
// the fastest here.
//
// Exact: one algorithm for any number of rows, the same on equal machines, which adds the depth in one go. It is the
// first of the library's guesses that had equal bits for a row in a trial, whatever the number of rows and the row's
// place among them; a machine on which none has ends the process. That this holds for all values and numbers of rows is
// what one would expect of such an algorithm (a tile of y is computed alike wherever it lies), but NVIDIA does not
// promise it. Multiplications of thousands of rows are slower, for the algorithm was chosen for few.
class Matmul {
 public:
  // For the current device, which must stay it in all calls.
  Matmul(cudaStream_t stream, const MatmulOptions& options);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // What the bits depend on besides the device. Equal when not exact too, though then bits may differ.
  std::string Fingerprint() const;

  // Queues it. While the stream is recorded nothing can be tried: a new shape takes the library's first guess for this
  // once, and ends the process when exact. Run the shapes once before.
  void Multiply(const MatmulArgs& args, bool is_recording);

 private:
  cublasLtMatmulAlgo_t AlgorithmFor(const MatmulShape& shape, const void* w, bool is_recording);
  // The algorithm that numbers of rows have in common; false when none was chosen and none can be now.
  bool Choose(const MatmulShape& shape, const void* w, bool is_recording, cublasLtMatmulAlgo_t* algorithm);

  const MatmulOptions options_;
  const cudaStream_t stream_;
  int driver_version_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<MatmulShape, cublasLtMatmulAlgo_t> algorithms_;  // By exact number of rows: known to fit.
  std::unique_ptr<MatmulCache> choices_;                    // By RowBucket(), or 1 row for all when exact.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_H_
