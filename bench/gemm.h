#ifndef QUIRE_BENCH_GEMM_H_
#define QUIRE_BENCH_GEMM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/types.h"

namespace quire {

// A matrix of a model, [rows, cols] in all; of a gated one, half of the rows are the gate's.
struct GemmShape {
  const char* name;
  int rows;
  int cols;
  bool is_gated = false;
};

// The matrices of m500 (0.5 B parameters: 1536 wide, 24 heads and 6 KV heads of 64, MLP of 4096, 32000 tokens) or of
// s15m (15 M: 288, 6 and 6 of 48, 768, 32000). INVALID_ARGUMENT for other names.
absl::StatusOr<std::vector<GemmShape>> GemmShapes(const std::string& model);

struct GemmOptions {
  int num_threads;  // 0: one per core. The times of one are CPU time, which other work disturbs less.
  DataType type;    // Of the weights.
  std::vector<int> num_tokens;
  int64_t matrix_bytes;  // Of all copies of a matrix, which take turns, and half of the plain read: more than the
                         // caches hold.
  double seconds;        // For each cell.
};

// One shape by so many tokens. The limit is what both bounds allow: every weight read once at the bandwidth, all
// products at the rate of the same kernel when its operands are in the nearest caches.
struct GemmSpeed {
  cpu::Isa isa;
  GemmShape shape;
  int num_tokens;
  double median_us;
  double gflops;         // GFLOP/s.
  double weight_gbytes;  // GB/s.
  double read_gbytes;    // What a plain read had before and after, on average.
  double peak_gflops;
  double limit_us;
};

// Calls `report` for every cell.
absl::Status MeasureGemm(const GemmOptions& options, const std::vector<cpu::Isa>& isas,
                         const std::vector<GemmShape>& shapes, absl::FunctionRef<void(const GemmSpeed&)> report);

}  // namespace quire

#endif  // QUIRE_BENCH_GEMM_H_
