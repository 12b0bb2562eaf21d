// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BYTE_SCALE_H_
#define QUIRE_KERNELS_BYTE_SCALE_H_

namespace quire {

// Where numbers with a common scale are rounded to fewer bits and their largest magnitude is smaller than this, all of
// them become 0, because the inverse of the scale could be infinite.
constexpr float kSmallestMagnitude = 0x1p-100f;

}  // namespace quire

#endif  // QUIRE_KERNELS_BYTE_SCALE_H_
