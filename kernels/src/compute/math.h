// Elementary functions on vectors, to about one unit in the last place of what training needs (≤ 2e-7).
#pragma once
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

// e^x: x = n·ln2 + r, a polynomial for e^r, and n put into the exponent. Below -87 it gives zero, above 88 infinity.
static FL_INLINE Vec exp(Vec x) {
  const Vec clamped = max(set(-87.0f), min(set(88.0f), x));
  const Vec magic = set(12582912.0f);  // 1.5·2²³: adding it rounds to an integer
  const Vec shifted = clamped * 1.44269504088896341f + magic;
  const Vec n = shifted - magic;
  const Vec r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = set(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Int power = ((Int)shifted - (Int)magic + 127) << 23;
  const Vec bounded = x > 88.0f ? set(__builtin_inff()) : p * (Vec)power;
  return x < -87.0f ? Vec{} : bounded;
}

// erf(x) = x·P(x²)/Q(x²), and exactly ±1 beyond |x| = 4, as in floats it is: 1 + erf(-∞) must be zero.
static FL_INLINE Vec erf(Vec x) {
  const Vec c = max(set(-4.0f), min(set(4.0f), x));
  const Vec s = c * c;
  Vec p = set(-2.72614225801306e-10f);
  p = p * s + 2.77068142495902e-08f;
  p = p * s + -2.10102402082508e-06f;
  p = p * s + -5.69250639462346e-05f;
  p = p * s + -7.34990630326855e-04f;
  p = p * s + -2.95459980854025e-03f;
  p = p * s + -1.60960333262415e-02f;
  Vec q = set(-1.45660718464996e-05f);
  q = q * s + -2.13374055278905e-04f;
  q = q * s + -1.68282697438203e-03f;
  q = q * s + -7.37332916720468e-03f;
  q = q * s + -1.42647390514189e-02f;
  const Vec inside = c * p / q;
  return x > 4.0f ? set(1.0f) : x < -4.0f ? set(-1.0f) : inside;
}

static FL_INLINE Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }
static FL_INLINE Vec tanh(Vec x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

}  // namespace fuseline::FUSELINE_ISA
