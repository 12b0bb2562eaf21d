// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_GEMM_H_
#define QUIRE_BENCH_GEMM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire {

// A matrix of a model. [rows, cols]; in a gated one, half of the rows belong to the gate.
struct GemmShape {
  const char* name;
  int rows;
  int cols;
  bool is_gated = false;
};

// Returns the matrices of m500 (0.5 B parameters: 1536 wide, 24 heads and 6 KV heads of 64, MLP of 4096, 32000 tokens)
// or of s15m (15 M: 288, 6 and 6 of 48, 768, 32000). INVALID_ARGUMENT for other names.
absl::StatusOr<std::vector<GemmShape>> GemmShapes(const std::string& model);

struct GemmOptions {
  int num_threads;  // 0 means one per core. With one thread, times are CPU time, which is less noisy.
  cpu::WeightFormat format;
  std::vector<int> num_tokens;
  // Bytes of all copies of a matrix together, which must exceed the caches. The copies are used in turns. A plain read
  // covers twice this size.
  int64_t matrix_bytes;
  double seconds;  // Measuring time of each cell.
};

// The multiplication of one shape by a number of tokens. The limit follows from two bounds: every weight is read once
// at the memory's bandwidth, and all products are computed at the rate of their instruction with operands in registers.
struct GemmSpeed {
  cpu::Isa isa;
  GemmShape shape;
  int num_tokens;
  double median_us;
  double gflops;           // GFLOP/s.
  double weight_gbytes;    // GB/s.
  double read_gbytes;      // Mean bandwidth of a plain read before and after, in GB/s.
  double register_gflops;  // Mean of RegisterProbe before and after; 0 without such an instruction.
  double limit_us;
};

// Measures all cells and calls `report` for each. Leaves out instruction sets that have no products of the format.
absl::Status MeasureGemm(const GemmOptions& options, const std::vector<cpu::Isa>& isas,
                         const std::vector<GemmShape>& shapes, absl::FunctionRef<void(const GemmSpeed&)> report);

}  // namespace quire

#endif  // QUIRE_BENCH_GEMM_H_
