// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_VECTOR_MATH_H_
#define QUIRE_KERNELS_CPU_ISA_VECTOR_MATH_H_

#include "kernels/cpu/isa/simd.h"

// Elementary functions on vectors. They are polynomials instead of library calls, so they give the same bits on every
// machine with fused multiply-add. The coefficients are minimax fits over the reduced range.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Computes e^x with an error of at most 2 units in the last place. The result is 0 for x <= -87 and e^88 for x above
// 88. NaN stays NaN.
QUIRE_INLINE Vec Exp(Vec x) {
  const Vec low = Set(-87.0f);
  const uint32_t vanishes = GreaterEqual(low, x);
  const Vec clamped = Max(low, Min(Set(88.0f), x));
  // x = n ln 2 + r with |r| <= ln 2 / 2. ln 2 is split in two parts; the first has few enough bits to multiply exactly.
  const Vec n = Round(Mul(clamped, Set(1.44269504f)));
  Vec r = Fma(n, Set(-0.693359375f), clamped);
  r = Fma(n, Set(2.12194440e-4f), r);
  Vec p = Set(0.0013813144760206342f);
  p = Fma(p, r, Set(0.008369418792426586f));
  p = Fma(p, r, Set(0.04166845604777336f));
  p = Fma(p, r, Set(0.16666515171527863f));
  p = Fma(p, r, Set(0.4999999403953552f));
  p = Add(Fma(p, Mul(r, r), r), Set(1.0f));
  return Select(vanishes, ScaleByPowerOfTwo(p, n), Zero());
}

// Computes ln x for normal x > 0. It is accurate also near 1, where the result is small.
QUIRE_INLINE Vec Log(Vec x) {
  Vec m, e;
  SplitExponent(x, &m, &e);
  const Vec r = Sub(m, Set(1.0f));
  Vec p = Set(-0.07634496688842773f);
  p = Fma(p, r, Set(0.1276157647371292f));
  p = Fma(p, r, Set(-0.13160182535648346f));
  p = Fma(p, r, Set(0.14201757311820984f));
  p = Fma(p, r, Set(-0.16623356938362122f));
  p = Fma(p, r, Set(0.20001226663589478f));
  p = Fma(p, r, Set(-0.2500081956386566f));
  p = Fma(p, r, Set(0.3333333134651184f));
  // ln(1 + r) = r - r^2 / 2 + r^3 p(r). The parts of e ln 2 are added smallest first.
  const Vec r2 = Mul(r, r);
  Vec tail = Fma(Mul(r2, r), p, Mul(e, Set(-2.12194440e-4f)));
  tail = Fma(r2, Set(-0.5f), tail);
  return Fma(e, Set(0.693359375f), Add(r, tail));
}

// Computes tanh x with a relative error of at most 3 units in the last place. NaN stays NaN.
QUIRE_INLINE Vec Tanh(Vec x) {
  // Near 0: x + x^3 p(x^2).
  const Vec square = Mul(x, x);
  Vec p = Set(0.002147524617612362f);
  p = Fma(p, square, Set(-0.00818265974521637f));
  p = Fma(p, square, Set(0.02170296013355255f));
  p = Fma(p, square, Set(-0.05394720286130905f));
  p = Fma(p, square, Set(0.13333210349082947f));
  p = Fma(p, square, Set(-0.3333333134651184f));
  const Vec near = Fma(Mul(x, square), p, x);
  const Vec far = Sub(Set(1.0f), Div(Set(2.0f), Add(Exp(Add(x, x)), Set(1.0f))));
  return Select(GreaterEqual(Set(0.390625f), square), far, near);
}

QUIRE_INLINE Vec Softcap(Vec x, float cap) {
  return Mul(Set(cap), Tanh(Div(x, Set(cap))));
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_VECTOR_MATH_H_
