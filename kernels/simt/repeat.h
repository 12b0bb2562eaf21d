// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_REPEAT_H_
#define QUIRE_KERNELS_SIMT_REPEAT_H_

#include <utility>

// A part of simt.h, which defines QUIRE_DEVICE.

namespace quire::simt {

// A number in the type, so that it can become a template argument.
template <int kValue>
struct Constant {
  QUIRE_DEVICE constexpr operator int() const { return kValue; }
};

template <typename F, int... kValues>
QUIRE_DEVICE void RepeatEach(const F& f, std::integer_sequence<int, kValues...>) {
  (f(Constant<kValues>()), ...);
}

// Calls f(i) for i = Constant<0>() to Constant<kCount - 1>().
template <int kCount, typename F>
QUIRE_DEVICE void Repeat(const F& f) {
  RepeatEach(f, std::make_integer_sequence<int, kCount>());
}

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_REPEAT_H_
