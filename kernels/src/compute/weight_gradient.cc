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

int64_t weight_gradient_panels(const WeightGradient& a, int64_t, int64_t columns) {
  return a.depth * ((columns + kPanel - 1) / kPanel * kPanel);
}

namespace {

// An odd number of cache lines for a full block, so that blocks do not share the lines of the first cache.
constexpr int64_t kBlockStride = kDepthBlock * kBlockRows + 16;
constexpr int64_t kSums = 8;  // the sums of a block's six columns, as whole vectors

// Blocks of six columns of `a` side by side: left[block][k][6], zero beyond. The rows of `a` are read along their
// length, and added up in `totals`[block][kSums] on the way.
void pack_left(const WeightGradient& a, int64_t row, int64_t rows, int64_t k, int64_t depth, float* left,
               float* totals) {
  const float* from = a.a + k * a.rows + row;
  for (int64_t step = 0; step < depth; ++step, from += a.rows) {
    // Eight at a time: the two too many are overwritten by the block's next step, and were read from within `a`.
    const bool more = step + 1 < depth;
    for (int64_t i = 0, block = 0; i < rows; i += kBlockRows, ++block) {
      float* to = left + block * kBlockStride + step * kBlockRows;
      Eight value = {};
      if (i + kBlockRows <= rows && more) {
        memcpy(&value, from + i, sizeof value);
        memcpy(to, &value, sizeof value);
      } else {
        for (int64_t j = 0; j < min(kBlockRows, rows - i); ++j) value[j] = from[i + j];
        memcpy(to, &value, sizeof(float) * kBlockRows);
      }
      Eight total;
      memcpy(&total, totals + kSums * block, sizeof total);
      total += value;
      memcpy(totals + kSums * block, &total, sizeof total);
    }
  }
}

int64_t blocks_of(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

}  // namespace

int64_t weight_gradient_scratch(const WeightGradient&, int64_t begin, int64_t end) {
  return blocks_of(end - begin) * (kBlockStride + kSums);
}

void weight_gradient(const WeightGradient& a, int64_t begin, int64_t end) {
  const int64_t padded = (a.columns + kPanel - 1) / kPanel * kPanel, rows = end - begin;
  const int64_t blocks = blocks_of(rows);
  float* totals = a.scratch + blocks * kBlockStride;
  memset(totals, 0, sizeof(float) * kSums * blocks);
  for (int64_t k = 0; k < a.depth; k += kDepthBlock) {
    const int64_t depth = min(kDepthBlock, a.depth - k);
    pack_left(a, begin, rows, k, depth, a.scratch, totals);
    for (int64_t column = a.first_column; column < a.last_column; column += kPanel) {
      const float* panel = a.panels + k * padded + column * depth;
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t row = block * kBlockRows;
        const Left left{a.scratch + block * kBlockStride, 1, kBlockRows};
        float* c = a.c + (begin + row) * a.columns + column;
        const int64_t count = min(kBlockRows, rows - row), width = a.last_column - column;
        if (k > 0)
          multiply_panel<true>(count, width, depth, left, panel, c, a.columns);
        else
          multiply_panel<false>(count, width, depth, left, panel, c, a.columns);
      }
    }
  }
  if (a.sums == nullptr || a.first_column > 0) return;
  for (int64_t i = 0; i < rows; ++i) a.sums[begin + i] = totals[i / kBlockRows * kSums + i % kBlockRows];
}

}  // namespace fuseline::FUSELINE_ISA
