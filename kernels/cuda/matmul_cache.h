// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MATMUL_CACHE_H_
#define QUIRE_KERNELS_CUDA_MATMUL_CACHE_H_

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/types.h"

namespace quire::cuda {

// This says what is multiplied (device.h).
//   kElements   16-bit floats.
//   kInt8       Whole numbers of 8 bits; y is one of 32.
//   kFp8        Numbers of FP8 with a scale for each row.
//   kFp8Blocks  Numbers of FP8, with scales for 128 columns of a row of x and for 128 x 128 weights.
enum class MatmulNumbers : uint8_t { kElements, kInt8, kFp8, kFp8Blocks };

constexpr bool IsFp8(MatmulNumbers numbers) {
  return numbers == MatmulNumbers::kFp8 || numbers == MatmulNumbers::kFp8Blocks;
}

// The properties of a multiplication on which the choice of its algorithm depends.
struct MatmulShape {
  int num_rows;
  int num_columns;
  int depth;
  DataType element;  // float32, without meaning, unless the numbers are kElements.
  DataType y_type;   // float32, without meaning, for kInt8.
  bool adds_to_y;
  MatmulNumbers numbers = MatmulNumbers::kElements;

  auto operator<=>(const MatmulShape&) const = default;
};

// The names of what is multiplied and of what results, in files and messages.
const char* NameOfNumbers(const MatmulShape& shape);
const char* NameOfResults(const MatmulShape& shape);

// Numbers of rows between two powers of two share an algorithm. Returns the smallest power of two that is at least
// num_rows: 1, 2, 4, 8, ... REQUIRES: 1 <= num_rows <= 2^30.
int RowBucket(int num_rows);

// Holds a cublasLtMatmulAlgo_t. Its documentation allows storing it for use with the same version of the library.
using MatmulAlgorithm = std::array<uint64_t, 8>;

// The fastest algorithms on a machine, in memory and in a text file:
//
//   quire matmul algorithms 1
//   NVIDIA H200, sm_90, cuBLASLt 130000, driver 13000
//   rows columns depth element y_type adds_to_y  eight words of the algorithm in hexadecimal
//   rows columns depth int8 int32 0  eight words
//   rows columns depth fp8 y_type adds_to_y  eight words
//   rows columns depth fp8-blocks y_type adds_to_y  eight words
//   ...
//   end  number of lines between  FNV-1a of all bytes above
//
// A file of another machine and a damaged file are ignored: one line on stderr says so, and the next Insert() writes a
// new file. Processes that share a file, on one machine or in several containers, replace it as a whole. Each adds its
// own algorithms to those that the others have written.
class MatmulCache {
 public:
  // Reads the file. `machine` is one line that names everything on which the speed of an algorithm depends. With an
  // empty path there is no file.
  MatmulCache(std::string path, std::string machine);

  // Returns null when there is none. Valid until the next Insert().
  const MatmulAlgorithm* Find(const MatmulShape& shape) const;
  // Stores the algorithm and replaces the file at once. The first failure to write is reported on stderr.
  void Insert(const MatmulShape& shape, const MatmulAlgorithm& algorithm);

 private:
  using Algorithms = std::map<MatmulShape, MatmulAlgorithm>;

  // Takes all of the file or nothing. Returns an error message, or an empty string, also if there is no file.
  std::string Read(Algorithms* algorithms) const;
  std::string Parse(const std::string& text, Algorithms* algorithms) const;
  std::string Format() const;
  // Writes the file. Returns why that is not possible, or an empty text.
  std::string Write() const;

  const std::string path_;
  const std::string machine_;
  bool has_complained_ = false;
  Algorithms algorithms_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATMUL_CACHE_H_
