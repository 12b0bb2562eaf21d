// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CEIL_DIV_H_
#define QUIRE_KERNELS_CEIL_DIV_H_

#include <type_traits>

namespace quire {

// Returns a / b, rounded up, for a >= 0 and b > 0. It has the type of `a`, in which a + b must fit.
template <typename T>
constexpr T CeilDiv(T a, std::type_identity_t<T> b) {
  return (a + b - 1) / b;
}

}  // namespace quire

#endif  // QUIRE_KERNELS_CEIL_DIV_H_
