// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/rotary_table.h"

#include <algorithm>
#include <cmath>

namespace quire::cuda {

RotaryTable::RotaryTable(Device* device, const float* inv_freq, int half, float scaling)
    : device_(device), inv_freq_(inv_freq), scaling_(scaling), frequencies_(half), table_(device, "rotary embedding") {
  device_->Copy(frequencies_.data(), inv_freq, half * sizeof(float));
  device_->Synchronize();
}

bool RotaryTable::Matches(const float* inv_freq, int half, float scaling) const {
  return inv_freq == inv_freq_ && size_t(half) == frequencies_.size() && scaling == scaling_;
}

// The angle is rounded to float32, as in the training of the models. Its cosine and sine are computed in double.
const float* RotaryTable::Get(int num_positions) {
  constexpr int kLeastPositions = 4096;
  const size_t half = frequencies_.size();
  if (num_positions > num_positions_) {
    num_positions_ = std::max({num_positions, 2 * num_positions_, kLeastPositions});
    std::vector<float> table(size_t(num_positions_) * 2 * half);
    for (int position = 0; position < num_positions_; ++position) {
      float* const row = &table[size_t(position) * 2 * half];
      for (size_t i = 0; i < half; ++i) {
        const double angle = float(position) * frequencies_[i];
        row[i] = float(std::cos(angle)) * scaling_;
        row[half + i] = float(std::sin(angle)) * scaling_;
      }
    }
    device_->Copy(table_.Reserve<float>(table.size()), table.data(), table.size() * sizeof(float));
    device_->Synchronize();
  }
  return table_.Reserve<float>(size_t(num_positions_) * 2 * half);
}

}  // namespace quire::cuda
