// SPDX-License-Identifier: Apache-2.0

#include "tools/make_model/random_tensor.h"

namespace quire::make_model {
namespace {

constexpr int kRounds = 10;

void Philox(uint64_t key, uint32_t counter[4]) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * counter[0];
    const uint64_t b = uint64_t{0xcd9e8d57} * counter[2];
    counter[0] = static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0;
    counter[1] = static_cast<uint32_t>(b);
    counter[2] = static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1;
    counter[3] = static_cast<uint32_t>(a);
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}

}  // namespace

void RandomTensor::Group(uint64_t group, float values[4]) const {
  uint32_t words[4] = {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), tensor_, 0};
  Philox(seed_, words);
  for (int i = 0; i < 4; ++i) {
    const double unit = (static_cast<double>(words[i]) + 0.5) * 0x1p-31 - 1.0;  // This is in (-1, 1).
    values[i] = static_cast<float>(center_ + width_ * unit);
  }
}

}  // namespace quire::make_model
