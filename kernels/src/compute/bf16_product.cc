// Products of bf16 operands, added up in floats: twelve rows by two vectors at a time.
#include "compute/bf16.h"

namespace fuseline::FUSELINE_ISA {
namespace {

constexpr int64_t kPairBlock = 384;  // of the depth at a time: twelve rows of it stay in the first cache

// Twelve rows of c from `start` on, which is a row for all (stride 0) or c itself.
typedef void (*Kernel)(int64_t pairs, const uint32_t* left, const uint32_t* panel, const float* start,
                       int64_t start_stride, float* c, int64_t stride);

FL_INLINE Vec low_half(Uint pairs) { return (Vec)(pairs << 16); }
FL_INLINE Vec high_half(Uint pairs) { return (Vec)(pairs & 0xFFFF0000u); }

// What the instruction computes, in plain vectors: products of bf16 are exact in floats, the upper half is added first.
void kernel_plain(int64_t pairs, const uint32_t* left, const uint32_t* panel, const float* start, int64_t start_stride,
                  float* c, int64_t stride) {
  constexpr int kRows = 4;
  for (int64_t row = 0; row < kLeftRows; row += kRows) {
    Vec total[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      total[i][0] = load(start + (row + i) * start_stride);
      total[i][1] = load(start + (row + i) * start_stride + W);
    }
    for (int64_t k = 0; k < pairs; ++k) {
      Uint b[2];
      memcpy(b, panel + k * kPanel, sizeof b);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const Uint a = set_uint(left[k * kLeftRows + row + i]);
        total[i][0] += high_half(a) * high_half(b[0]);
        total[i][0] += low_half(a) * low_half(b[0]);
        total[i][1] += high_half(a) * high_half(b[1]);
        total[i][1] += low_half(a) * low_half(b[1]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      store(c + (row + i) * stride, total[i][0]);
      store(c + (row + i) * stride + W, total[i][1]);
    }
  }
}

#if defined(__AVX512F__)
#define FOR_LEFT_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

// The instruction by name: the compilers keep accumulators in memory that an intrinsic adds to in a loop.
#define ADD_PAIRS(total, panel, pair) asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(total) : "v"(panel), "m"(pair))

void kernel_native(int64_t pairs, const uint32_t* left, const uint32_t* panel, const float* start, int64_t start_stride,
                   float* c, int64_t stride) {
#define BEGIN(i) Vec low##i = load(start + i * start_stride), high##i = load(start + i * start_stride + W);
  FOR_LEFT_ROWS(BEGIN)
#undef BEGIN
  for (int64_t k = 0; k < pairs; ++k, left += kLeftRows, panel += kPanel) {
    Vec first, second;
    memcpy(&first, panel, sizeof first);
    memcpy(&second, panel + W, sizeof second);
#define ADD(i)                          \
  ADD_PAIRS(low##i, first, left[i]); \
  ADD_PAIRS(high##i, second, left[i]);
    FOR_LEFT_ROWS(ADD)
#undef ADD
  }
#define END(i)                 \
  store(c + i * stride, low##i); \
  store(c + i * stride + W, high##i);
  FOR_LEFT_ROWS(END)
#undef END
}
#endif

// A block at the edge of c goes through memory of its own.
template <Kernel Multiply>
void edge(int64_t rows, int64_t columns, int64_t pairs, const uint32_t* left, const uint32_t* panel, const float* start,
          int64_t start_stride, float* c, int64_t stride) {
  float block[kLeftRows * kPanel], begin[kLeftRows * kPanel];
  memset(begin, 0, sizeof begin);
  for (int64_t row = 0; row < rows; ++row)
    memcpy(begin + row * kPanel, start + row * start_stride, sizeof(float) * columns);
  Multiply(pairs, left, panel, begin, kPanel, block, kPanel);
  for (int64_t row = 0; row < rows; ++row) memcpy(c + row * stride, block + row * kPanel, sizeof(float) * columns);
}

template <Kernel Multiply>
FL_INLINE void product(const Bf16Product& a, int64_t begin, int64_t end) {
  const int64_t all = pairs_in(a.depth);
  for (int64_t k = 0; k == 0 || k < all; k += kPairBlock) {
    const int64_t pairs = min(kPairBlock, all - k);
    for (int64_t column = a.first_column; column < a.last_column; column += kPanel) {
      const uint32_t* panel = a.right + column * all + k * kPanel;
      const int64_t columns = min(kPanel, a.last_column - column);
      for (int64_t row = begin; row < end; row += kLeftRows) {
        const uint32_t* left = a.left + row * all + k * kLeftRows;
        float* c = a.c + row * a.columns + column;
        const float* start = k == 0 ? a.start + column : c;
        const int64_t start_stride = k == 0 ? 0 : a.columns, rows = min(kLeftRows, end - row);
        if (rows == kLeftRows && columns == kPanel)
          Multiply(pairs, left, panel, start, start_stride, c, a.columns);
        else
          edge<Multiply>(rows, columns, pairs, left, panel, start, start_stride, c, a.columns);
      }
    }
  }
}

}  // namespace

void bf16_product(const Bf16Product& a, int64_t begin, int64_t end) { product<kernel_plain>(a, begin, end); }

#if defined(__AVX512F__)
void bf16_product_native(const Bf16Product& a, int64_t begin, int64_t end);
void bf16_product_native(const Bf16Product& a, int64_t begin, int64_t end) { product<kernel_native>(a, begin, end); }
#endif

}  // namespace fuseline::FUSELINE_ISA
