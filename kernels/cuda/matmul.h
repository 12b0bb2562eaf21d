// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MATMUL_H_
#define QUIRE_KERNELS_CUDA_MATMUL_H_

#include <cublasLt.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul_cache.h"
#include "kernels/cuda/matmul_problem.h"
#include "kernels/cuda/matmul_tuner.h"

namespace quire::cuda {

struct MatmulOptions {
  bool exact = false;
  std::string tuning_cache;  // matmul_cache.h describes the file. It is not used when exact.
  std::string device_name;
  size_t l2_bytes = 0;
};

// Multiplication by cuBLASLt on one stream.
//
// When not exact, the first use of a shape tries the library's suggestions. This takes time, and memory for another x
// and y. All numbers of rows up to the same power of two share the fastest algorithm. If there is no memory for the
// trial, the library's first suggestion is used. The order in which a row's products are added, and so its last bits,
// depend on the number of rows and on which algorithm was the fastest on this machine.
//
// When exact, one algorithm is used for any number of rows. It is the same on equal machines and adds the whole depth
// in one go. It is the first of the library's suggestions that gave equal bits for a row in a trial, whatever the
// number of rows and the row's place among them. The process ends if no algorithm passes. One expects such an algorithm
// to behave this way for all values and numbers of rows, because a tile of y is computed in the same way wherever it
// lies, but NVIDIA does not guarantee it. Multiplications of thousands of rows are slower, because the algorithm was
// chosen for few.
class Matmul {
 public:
  // Works on the current device, which must stay the current one in all calls.
  Matmul(cudaStream_t stream, const MatmulOptions& options);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Names everything on which the bits depend besides the device. When not exact, bits may differ despite equal
  // fingerprints.
  std::string Fingerprint() const;

  // Queues the multiplication. Nothing can be tried while the stream is recorded. A new shape then uses the library's
  // first suggestion for this call only, and ends the process when exact. Run all shapes once before recording.
  void Multiply(const MatmulArgs& args, bool is_recording);
  // Does the same with whole numbers. Their sums are exact in every order, so the fastest algorithms are used when
  // exact, too. Returns false, and queues nothing, if the library has no algorithm for the shape.
  bool MultiplyInt8(const Int8MatmulArgs& args, bool is_recording);
  // Does the same with numbers of FP8. REQUIRES: not exact, because the results depend on the number of rows.
  bool MultiplyFp8(const Fp8MatmulArgs& args, bool is_recording);

 private:
  // Returns nothing if the library has no algorithm.
  std::optional<cublasLtMatmulAlgo_t> AlgorithmFor(const MatmulShape& shape, int y_stride, const MatmulScales& scales,
                                                   const void* w, bool is_recording);
  // Queues the multiplication if the library has an algorithm for it, and returns whether it has.
  bool TryMultiply(const MatmulShape& shape, const MatmulScales& scales, const void* x, const void* w, void* y,
                   bool is_recording);
  // Queues the multiplication.
  void Run(const MatmulShape& shape, int y_stride, const MatmulScales& scales, const cublasLtMatmulAlgo_t& algorithm,
           const void* x, const void* w, void* y);
  // Returns whether the results of an algorithm must not depend on the number of rows.
  bool NeedsOneAlgorithm(const MatmulShape& shape) const {
    return options_.exact && shape.numbers == MatmulNumbers::kElements;
  }
  // Finds the algorithm that several numbers of rows share. Returns false when none was chosen and none can be chosen
  // now.
  bool Choose(const MatmulShape& shape, const MatmulScales& scales, const void* w, bool is_recording,
              cublasLtMatmulAlgo_t* algorithm);

  const MatmulOptions options_;
  const cudaStream_t stream_;
  int driver_version_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  // The shapes have the exact number of rows. The stride of y is beside them, and the algorithms are known to fit.
  std::map<std::pair<MatmulShape, int>, cublasLtMatmulAlgo_t> algorithms_;
  std::unique_ptr<MatmulCache> choices_;  // The shapes have RowBucket() rows, or 1 row for all when exact.
  std::set<MatmulShape> missing_;         // Shapes of 8 bits and exact numbers of rows that have no algorithm.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_H_
