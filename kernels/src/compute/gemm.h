// Small dense products: a register block of 6 rows by 2 vectors over panels of the right operand.
#pragma once
#include "compute/kernels.h"
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

constexpr int64_t kBlockRows = kWeightGradientRows;
constexpr int64_t kPanel = 2 * W;     // columns of a panel
constexpr int64_t kDepthBlock = kWeightGradientDepth;  // a panel of it fits the first cache

// The left operand, element (i, k) at data[i·row + k·column]: either layout, no copy.
struct Left {
  const float* data;
  int64_t row, column;
};

// c = a·panel, or c += a·panel, for `Rows` rows and one whole panel.
template <int Rows, bool Add>
__attribute__((noinline)) void multiply_block(int64_t depth, Left a, const float* panel, float* c, int64_t stride) {
  Vec total[Rows][2];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i) {
    total[i][0] = total[i][1] = Vec{};
    __builtin_prefetch(c + i * stride, 1);  // needed only after the loop
  }
  const float* left = a.data;
  for (int64_t k = 0; k < depth; ++k) {
    const Vec low = load(panel), high = load(panel + W);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) {
      const Vec x = set(left[i * a.row]);
      total[i][0] += x * low;
      total[i][1] += x * high;
    }
    left += a.column;
    panel += kPanel;
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i) {
    float* to = c + i * stride;
    store(to, Add ? load(to) + total[i][0] : total[i][0]);
    store(to + W, Add ? load(to + W) + total[i][1] : total[i][1]);
  }
}

template <bool Add>
static inline void multiply_rows(int64_t rows, int64_t depth, Left a, const float* panel, float* c, int64_t stride) {
  switch (rows) {
    case 1: return multiply_block<1, Add>(depth, a, panel, c, stride);
    case 2: return multiply_block<2, Add>(depth, a, panel, c, stride);
    case 3: return multiply_block<3, Add>(depth, a, panel, c, stride);
    case 4: return multiply_block<4, Add>(depth, a, panel, c, stride);
    case 5: return multiply_block<5, Add>(depth, a, panel, c, stride);
    default: return multiply_block<6, Add>(depth, a, panel, c, stride);
  }
}

// One panel's columns of c, of which only the first `columns` may be touched.
template <bool Add>
static inline void multiply_panel(int64_t rows, int64_t columns, int64_t depth, Left a, const float* panel, float* c,
                                  int64_t stride) {
  for (int64_t i = 0; i < rows; i += kBlockRows) {
    const int64_t count = min(kBlockRows, rows - i);
    const Left block{a.data + i * a.row, a.row, a.column};
    if (columns >= kPanel) {
      multiply_rows<Add>(count, depth, block, panel, c + i * stride, stride);
      continue;
    }
    float edge[kBlockRows * kPanel];
    multiply_rows<false>(count, depth, block, panel, edge, kPanel);
    for (int64_t row = 0; row < count; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        float& to = c[(i + row) * stride + column];
        to = (Add ? to : 0) + edge[row * kPanel + column];
      }
  }
}

struct Extent {
  int64_t rows, columns, depth;
  int64_t panel_depth;  // that the panels were packed with; the product may stop before
};

// c = a·b (or += with `add`), b in panels.
static inline void multiply(Extent size, Left a, const float* b, float* c, int64_t stride, bool add) {
  for (int64_t column = 0; column < size.columns; column += kPanel) {
    const int64_t columns = size.columns - column;
    for (int64_t k = 0; k == 0 || k < size.depth; k += kDepthBlock) {
      const int64_t depth = min(kDepthBlock, size.depth - k);
      const float* panel = b + column * size.panel_depth + k * kPanel;
      const Left left{a.data + k * a.column, a.row, a.column};
      if (add || k > 0)
        multiply_panel<true>(size.rows, columns, depth, left, panel, c + column, stride);
      else
        multiply_panel<false>(size.rows, columns, depth, left, panel, c + column, stride);
    }
  }
}

// Panels of a matrix whose rows are the depth: panels[p][k][j] = from[k·stride + p·kPanel + j], zero beyond. Four
// panels at a time, so that a row is read along its length.
static inline void pack(const float* from, int64_t stride, int64_t depth, int64_t columns, float* panels) {
  constexpr int64_t kTogether = 4;
  const int64_t size = depth * kPanel;
  int64_t column = 0;
  for (; column + kTogether * kPanel <= columns; column += kTogether * kPanel, panels += kTogether * size)
    for (int64_t k = 0; k < depth; ++k) {
      const float* row = from + k * stride + column;
      __builtin_prefetch(row + 8 * stride);
      __builtin_prefetch(row + 8 * stride + 2 * kPanel);
#pragma GCC unroll 4
      for (int64_t p = 0; p < kTogether; ++p) {
        store(panels + p * size + k * kPanel, load(row + p * kPanel));
        store(panels + p * size + k * kPanel + W, load(row + p * kPanel + W));
      }
    }
  for (; column < columns; column += kPanel) {
    const int64_t count = min(kPanel, columns - column);
    for (int64_t k = 0; k < depth; ++k, panels += kPanel) {
      const float* row = from + k * stride + column;
      for (int64_t j = 0; j < kPanel; ++j) panels[j] = j < count ? row[j] : 0;
    }
  }
}

typedef float Eight __attribute__((vector_size(32)));

// Eight rows of eight become eight columns: pairs, then fours, then halves change places.
static FL_INLINE void transpose_8x8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  Eight row[8], pair[8], four[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) memcpy(&row[i], from + i * from_stride, sizeof(Eight));
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pair[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pair[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      four[i + 2 * j] = __builtin_shufflevector(pair[i + j], pair[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      four[i + 2 * j + 1] = __builtin_shufflevector(pair[i + j], pair[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Eight low = __builtin_shufflevector(four[i], four[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const Eight high = __builtin_shufflevector(four[i], four[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    memcpy(to + i * to_stride, &low, sizeof low);
    memcpy(to + (i + 4) * to_stride, &high, sizeof high);
  }
}

// Panels of the transpose: panels[p][k][j] = from[(p·kPanel + j)·stride + k], zero beyond.
static inline void pack_transposed(const float* from, int64_t stride, int64_t depth, int64_t columns, float* panels) {
  for (int64_t column = 0; column < columns; column += kPanel, panels += depth * kPanel) {
    const int64_t count = min(kPanel, columns - column), whole = count / 8 * 8, deep = depth / 8 * 8;
    if (count < kPanel) memset(panels, 0, sizeof(float) * depth * kPanel);
    const float* rows = from + column * stride;
    for (int64_t j = 0; j < whole; j += 8)
      for (int64_t k = 0; k < deep; k += 8)
        transpose_8x8(rows + j * stride + k, stride, panels + k * kPanel + j, kPanel);
    for (int64_t j = 0; j < count; ++j)
      for (int64_t k = j < whole ? deep : 0; k < depth; ++k) panels[k * kPanel + j] = rows[j * stride + k];
  }
}

}  // namespace fuseline::FUSELINE_ISA
