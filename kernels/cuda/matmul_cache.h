#ifndef QUIRE_KERNELS_CUDA_MATMUL_CACHE_H_
#define QUIRE_KERNELS_CUDA_MATMUL_CACHE_H_

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/types.h"

namespace quire::cuda {

// A multiplication (device.h), as far as the choice of its algorithm depends on it.
struct MatmulShape {
  int num_rows;
  int num_columns;
  int depth;
  DataType element;
  DataType y_type;
  bool adds_to_y;

  auto operator<=>(const MatmulShape&) const = default;
};

// All numbers of rows up to a power of two, and above the one before, have an algorithm in common: 1, 2, 4, 8, ...
// Returns that power. REQUIRES: 1 <= num_rows <= 2^30.
int RowBucket(int num_rows);

// cublasLtMatmulAlgo_t, which says of itself that it may be stored and used with the same version of the library.
using MatmulAlgorithm = std::array<uint64_t, 8>;

// The algorithms that were the fastest on a machine, in memory and in a text file:
//
//   quire matmul algorithms 1
//   NVIDIA H200, sm_90, cuBLASLt 130000, driver 13000
//   rows columns depth element y_type adds_to_y  eight words of the algorithm in hexadecimal
//   ...
//   end  number of lines between  FNV-1a of all bytes above
//
// A file of another machine, or one that is damaged, is as good as none: one line on stderr says so, and the next
// Insert() writes it anew. Processes that share a file replace it as a whole; the last one wins.
class MatmulCache {
 public:
  // Reads the file. `machine` is one line: what the speed of an algorithm depends on. With an empty path there is no
  // file.
  MatmulCache(std::string path, std::string machine);

  // Null when there is none. Valid until the next Insert().
  const MatmulAlgorithm* Find(const MatmulShape& shape) const;
  // Keeps it, and replaces the file at once. That it cannot is said on stderr, the first time.
  void Insert(const MatmulShape& shape, const MatmulAlgorithm& algorithm);

 private:
  // Takes all of the file, or nothing; returns what is wrong with it, or an empty string.
  std::string Parse(const std::string& text);
  std::string Format() const;
  void Write();

  const std::string path_;
  const std::string machine_;
  bool has_complained_ = false;
  std::map<MatmulShape, MatmulAlgorithm> algorithms_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_CACHE_H_
