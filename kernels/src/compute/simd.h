// Vectors of the widest kind of the instruction set this file is compiled for, in GCC/Clang's portable vector
// extensions, so that the same text serves SSE2, AVX2, AVX-512 and NEON. The few intrinsics are in this file.
//
// Everything compiled per instruction set lives in fuseline::FUSELINE_ISA and uses no std templates: a weak
// std::min compiled for AVX-512 could be the copy the linker keeps for everybody.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define FL_INLINE inline __attribute__((always_inline))
#define FL_LAMBDA __attribute__((always_inline))

namespace fuseline::FUSELINE_ISA {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float Vec __attribute__((vector_size(W * 4)));
typedef int32_t Int __attribute__((vector_size(W * 4)));
typedef uint32_t Uint __attribute__((vector_size(W * 4)));

static FL_INLINE Vec set(float value) { return value - Vec{}; }
static FL_INLINE Int set_int(int32_t value) { return value - Int{}; }
static FL_INLINE Uint set_uint(uint32_t value) { return value - Uint{}; }

// Whole vectors, and the rest of a row that is shorter than one.
struct Full {};
struct Part {
  int64_t count;
};

static FL_INLINE Vec load(const float* from, Full = {}) {
  Vec value;
  memcpy(&value, from, sizeof value);
  return value;
}
static FL_INLINE Vec load(const float* from, Part part) {
  Vec value = {};
  for (int64_t lane = 0; lane < part.count; ++lane) value[lane] = from[lane];
  return value;
}
static FL_INLINE void store(float* to, Vec value, Full = {}) { memcpy(to, &value, sizeof value); }
static FL_INLINE void store(float* to, Vec value, Part part) {
  for (int64_t lane = 0; lane < part.count; ++lane) to[lane] = value[lane];
}
// Lanes outside a part become `other`.
static FL_INLINE Vec keep(Vec value, float, Full) { return value; }
static FL_INLINE Vec keep(Vec value, float other, Part part) {
  for (int64_t lane = part.count; lane < W; ++lane) value[lane] = other;
  return value;
}

// Stores that bypass the caches, for results too large to be read back from them. `to` must be aligned.
static FL_INLINE void stream(float* to, Vec value) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, (__m512)value);
#elif defined(__AVX__)
  _mm256_stream_ps(to, (__m256)value);
#else
  store(to, value);
#endif
}
static FL_INLINE void stream_fence() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

// Divides scratch memory into pieces, in whole cache lines; from null on it only counts.
struct Layout {
  float* memory;
  int64_t size = 0;
  FL_INLINE float* take(int64_t floats) {
    float* piece = memory == nullptr ? nullptr : memory + size;
    size += (floats + 15) / 16 * 16;
    return piece;
  }
};

// body(index, lanes, slot) along a row; slot is 0…3 and constant after inlining, so that reductions can keep
// four independent accumulators and hide the latency of the addition.
template <class Body>
static FL_INLINE void sweep(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + 4 * W <= count; i += 4 * W) {
    body(i, Full{}, 0);
    body(i + W, Full{}, 1);
    body(i + 2 * W, Full{}, 2);
    body(i + 3 * W, Full{}, 3);
  }
  for (; i + W <= count; i += W) body(i, Full{}, 0);
  if (i < count) body(i, Part{count - i}, 1);
}

// The compilers make a comparison and a blend of the plain form; the processors have one instruction. Where one of the
// two is no number, the result is the second: a limit comes first, so that it does not hide what is no number.
#if defined(__AVX512F__)
static FL_INLINE Vec max(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
static FL_INLINE Vec min(Vec a, Vec b) { return (Vec)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX__)
static FL_INLINE Vec max(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
static FL_INLINE Vec min(Vec a, Vec b) { return (Vec)_mm256_min_ps((__m256)a, (__m256)b); }
#else
static FL_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
static FL_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
#endif
static FL_INLINE float max(float a, float b) { return a > b ? a : b; }
static FL_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

static FL_INLINE float sum(Vec value) {
  float total = 0;
  for (int lane = 0; lane < W; ++lane) total += value[lane];
  return total;
}
static FL_INLINE float largest(Vec value) {
  float result = value[0];
  for (int lane = 1; lane < W; ++lane) result = max(result, value[lane]);
  return result;
}

// Four accumulators that are combined in one fixed order.
struct Sum {
  Vec part[4] = {};
  FL_INLINE void add(Vec value, int slot) { part[slot] += value; }
  FL_INLINE float total() const { return sum((part[0] + part[1]) + (part[2] + part[3])); }
};

static FL_INLINE Vec sqrt(Vec value) {
#if defined(__AVX512F__)
  return (Vec)_mm512_sqrt_ps((__m512)value);
#elif defined(__AVX__)
  return (Vec)_mm256_sqrt_ps((__m256)value);
#else
  for (int lane = 0; lane < W; ++lane) value[lane] = __builtin_sqrtf(value[lane]);
  return value;
#endif
}

}  // namespace fuseline::FUSELINE_ISA
