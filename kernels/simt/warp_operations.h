// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_WARP_OPERATIONS_H_
#define QUIRE_KERNELS_SIMT_WARP_OPERATIONS_H_

#include <array>
#include <cstdint>

#include "kernels/simt/types.h"

// The collectives of a warp, as functions of the arguments of all its lanes. Plain arithmetic without checks.
namespace quire::simt {

template <typename T>
using PerLane = std::array<T, kWarpSize>;

struct ShuffleInput {
  uint64_t value;
  int source_lane;
};
void ExecuteShuffle(const PerLane<const ShuffleInput*>& in, const PerLane<uint64_t*>& out);

void ExecuteBallot(const PerLane<const bool*>& in, const PerLane<uint32_t*>& out);

// rows[8 m + r] is row r of matrix m. out[lane][m] receives the lane's pair of that matrix.
void ExecuteLoadMatrix4(const PerLane<const void*>& rows, bool is_transposed, const PerLane<uint32_t*>& out);
// Returns the passes beyond the first one of each of the four matrices. Different rows collide if they use the same 16
// of the 128 bytes of all banks.
int CountMatrixConflicts(const PerLane<const void*>& rows);

struct MmaInput {
  const uint32_t* a;  // [4]
  uint32_t b0;
  uint32_t b1;
};
enum class MmaType : uint8_t { kBf16, kF16, kFp8 };  // ExecuteMma has no kFp8.
// Sums are float32 in ascending k and are added to c at the end. The hardware uses its own order and rounding.
void ExecuteMma(const PerLane<const MmaInput*>& in, MmaType type, const PerLane<float*>& c);
// Does the same with 32 signed bytes. Sums are exact; as in the hardware, they have 32 bits.
void ExecuteMmaS8(const PerLane<const MmaInput*>& in, const PerLane<int32_t*>& c);

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_WARP_OPERATIONS_H_
