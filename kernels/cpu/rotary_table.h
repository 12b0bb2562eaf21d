// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ROTARY_TABLE_H_
#define QUIRE_KERNELS_CPU_ROTARY_TABLE_H_

#include <memory>
#include <vector>

namespace quire::cpu {

// Cosines and sines of a rotary embedding. They are computed once per position, in pages of 64 positions, and kept,
// because all layers and all later steps read them. One thread calls Prepare(). Between two calls of Prepare(), any
// thread may call At().
class RotaryTable {
 public:
  // Copies inv_freq[0, half).
  RotaryTable(const float* inv_freq, int half, float scaling);

  bool Matches(const float* inv_freq, int half, float scaling) const;

  // Makes positions[0, num_positions) available.
  void Prepare(const int* positions, int num_positions);

  // Returns [2 * half]: cosines, then sines. REQUIRES: the position was prepared.
  const float* At(int position) const;

 private:
  std::unique_ptr<float[]> MakePage(int first_position) const;

  const std::vector<float> inv_freq_;
  const float scaling_;
  std::vector<std::unique_ptr<float[]>> pages_;  // Indexed by position / 64; null means not needed yet.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ROTARY_TABLE_H_
