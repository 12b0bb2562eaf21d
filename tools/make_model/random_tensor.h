// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_MAKE_MODEL_RANDOM_TENSOR_H_
#define QUIRE_TOOLS_MAKE_MODEL_RANDOM_TENSOR_H_

#include <cstdint>

namespace quire::make_model {

// Element `index` of tensor `tensor` of the model with `seed`, uniform in center +- width. A function of its arguments
// alone: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the seed as key and
// (index / 4, tensor) as counter. Only multiplications and additions, so the same bits everywhere.
class RandomTensor {
 public:
  RandomTensor(uint64_t seed, uint32_t tensor, double center, double width)
      : seed_(seed), tensor_(tensor), center_(center), width_(width) {}

  // Elements 4 * group .. 4 * group + 3.
  void Group(uint64_t group, float values[4]) const;

 private:
  const uint64_t seed_;
  const uint32_t tensor_;
  const double center_;
  const double width_;
};

}  // namespace quire::make_model

#endif  // QUIRE_TOOLS_MAKE_MODEL_RANDOM_TENSOR_H_
