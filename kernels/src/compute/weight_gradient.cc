// c = aᵀ·b for tall a and b: the gradient of a linear layer's weight.
#include "compute/gemm.h"
#include "compute/kernels.h"

namespace fuseline::FUSELINE_ISA {

// Depth blocks outermost, so that a block of all panels is contiguous: panels[block][panel][k][j].
void weight_gradient_pack(const WeightGradient& a, int64_t begin, int64_t end) {
  const int64_t columns = (a.columns + kPanel - 1) / kPanel * kPanel;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t k = block * kDepthBlock, depth = min(kDepthBlock, a.depth - k);
    pack(a.b + k * a.columns, a.columns, depth, a.columns, a.panels + k * columns);
  }
}

namespace {

// Groups of six columns of `a` side by side: left[group][k][6], zero beyond. Adds the columns up on the way.
void pack_left(const WeightGradient& a, int64_t row, int64_t rows, int64_t k, int64_t depth, float* left) {
  for (int64_t group = 0; group < rows; group += kBlockRows, left += depth * kBlockRows) {
    const int64_t count = min(kBlockRows, rows - group), first = row + group;
    const float* from = a.a + k * a.rows + first;
    // Eight at a time: the two too many are overwritten by the next step, and read from the next row. The last
    // steps have no such neighbours.
    const int64_t quick = count == kBlockRows ? depth - 2 : 0;
    Eight total = {};
    int64_t step = 0;
    for (; step < quick && (k + step + 1) * a.rows + 2 < a.depth * a.rows; ++step) {
      Eight value;
      memcpy(&value, from + step * a.rows, sizeof value);
      memcpy(left + step * kBlockRows, &value, sizeof value);
      total += value;
    }
    for (; step < depth; ++step)
      for (int64_t i = 0; i < kBlockRows; ++i) {
        const float value = i < count ? from[step * a.rows + i] : 0;
        left[step * kBlockRows + i] = value;
        total[i] += value;
      }
    if (a.sums != nullptr && a.first_column == 0)
      for (int64_t i = 0; i < count; ++i) a.sums[first + i] = (k > 0 ? a.sums[first + i] : 0) + total[i];
  }
}

}  // namespace

void weight_gradient(const WeightGradient& a, int64_t begin, int64_t end) {
  const int64_t padded = (a.columns + kPanel - 1) / kPanel * kPanel, rows = end - begin;
  for (int64_t k = 0; k < a.depth; k += kDepthBlock) {
    const int64_t depth = min(kDepthBlock, a.depth - k);
    pack_left(a, begin, rows, k, depth, a.scratch);
    for (int64_t column = a.first_column; column < a.last_column; column += kPanel) {
      const float* panel = a.panels + k * padded + column * depth;
      for (int64_t row = 0; row < rows; row += kBlockRows) {
        const Left left{a.scratch + row * depth, 1, kBlockRows};
        float* c = a.c + (begin + row) * a.columns + column;
        const int64_t count = min(kBlockRows, rows - row), width = a.last_column - column;
        if (k > 0)
          multiply_panel<true>(count, width, depth, left, panel, c, a.columns);
        else
          multiply_panel<false>(count, width, depth, left, panel, c, a.columns);
      }
    }
  }
}

}  // namespace fuseline::FUSELINE_ISA
