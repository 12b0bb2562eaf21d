// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/rotary_table.h"

#include <algorithm>
#include <cmath>

namespace quire::cpu {
namespace {

constexpr int kPagePositions = 64;

}  // namespace

RotaryTable::RotaryTable(const float* inv_freq, int half, float scaling)
    : inv_freq_(inv_freq, inv_freq + half), scaling_(scaling) {}

bool RotaryTable::Matches(const float* inv_freq, int half, float scaling) const {
  return scaling == scaling_ && std::equal(inv_freq, inv_freq + half, inv_freq_.begin(), inv_freq_.end());
}

void RotaryTable::Prepare(const int* positions, int num_positions) {
  for (int i = 0; i < num_positions; ++i) {
    const size_t page = positions[i] / kPagePositions;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (pages_[page] == nullptr) pages_[page] = MakePage(int(page) * kPagePositions);
  }
}

const float* RotaryTable::At(int position) const {
  return pages_[position / kPagePositions].get() + position % kPagePositions * 2 * inv_freq_.size();
}

// The angle is rounded to float32, as in the training of the models. Its cosine and sine are computed in double, so
// that they are the same on every machine.
std::unique_ptr<float[]> RotaryTable::MakePage(int first_position) const {
  const size_t half = inv_freq_.size();
  std::unique_ptr<float[]> page(new float[kPagePositions * 2 * half]);
  for (int i = 0; i < kPagePositions; ++i) {
    float* row = page.get() + i * 2 * half;
    for (size_t j = 0; j < half; ++j) {
      const double angle = float(first_position + i) * inv_freq_[j];
      row[j] = float(std::cos(angle)) * scaling_;
      row[half + j] = float(std::sin(angle)) * scaling_;
    }
  }
  return page;
}

}  // namespace quire::cpu
