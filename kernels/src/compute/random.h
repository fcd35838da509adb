// Dropout masks from a counter: the bits are a function of (key, row, column), so that the backward pass makes
// them again, any thread can make any part, and every instruction set makes the same.
#pragma once
#include "compute/kernels.h"
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

static FL_INLINE uint64_t row_key(uint64_t key, uint64_t row) {
  uint64_t x = key + row * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

static FL_INLINE Uint mix(Uint x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// 0 or 1/(1 − ratio) for the columns column … column + W − 1 of the row with this key.
static FL_INLINE Vec dropout_factor(const Dropout& dropout, uint64_t key, int64_t column) {
  Uint lane;
  for (int i = 0; i < W; ++i) lane[i] = static_cast<uint32_t>(i);
  const Uint bits = mix(mix(lane + static_cast<uint32_t>(column) + static_cast<uint32_t>(key)) ^
                        static_cast<uint32_t>(key >> 32));
  return bits >= dropout.threshold ? set(dropout.scale) : Vec{};
}

}  // namespace fuseline::FUSELINE_ISA
