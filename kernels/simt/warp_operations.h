#ifndef QUIRE_KERNELS_SIMT_WARP_OPERATIONS_H_
#define QUIRE_KERNELS_SIMT_WARP_OPERATIONS_H_

#include <array>
#include <cstdint>

#include "kernels/simt/types.h"

// What a warp computes together, given what each of its lanes brought. Plain arithmetic, no checks.
namespace quire::simt {

template <typename T>
using PerLane = std::array<T, kWarpSize>;

struct ShuffleInput {
  uint64_t value;
  int source_lane;
};
void ExecuteShuffle(const PerLane<const ShuffleInput*>& in, const PerLane<uint64_t*>& out);

void ExecuteBallot(const PerLane<const bool*>& in, const PerLane<uint32_t*>& out);

// rows[8 m + r] is row r of matrix m, out[lane][m] the lane's pair of that matrix.
void ExecuteLoadMatrix4(const PerLane<const void*>& rows, bool is_transposed, const PerLane<uint32_t*>& out);
// Passes beyond the first of each of the four matrices: rows in the same 16 of the 128 bytes of all banks collide,
// unless they are the same row.
int CountMatrixConflicts(const PerLane<const void*>& rows);

struct MmaInput {
  const uint32_t* a;  // [4]
  uint32_t b0;
  uint32_t b1;
};
enum class MmaType : uint8_t { kBf16, kF16 };
// Sums are float32 in ascending k, added to c at the end; the hardware's order and rounding are its own.
void ExecuteMma(const PerLane<const MmaInput*>& in, MmaType type, const PerLane<float*>& c);

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_WARP_OPERATIONS_H_
