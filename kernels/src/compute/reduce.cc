#include "compute/kernels.h"
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

void column_sum(const ColumnSum& a, int64_t begin, int64_t end) {
  sweep(end - begin, [&](int64_t i, auto lanes, int) FL_LAMBDA {
    Vec total = {};
    for (int64_t row = 0; row < a.rows; ++row) total += load(a.x + row * a.stride + begin + i, lanes);
    store(a.out + begin + i, total, lanes);
  });
}

// Four rows at a time: the running sum is then read and written a quarter as often.
void row_sum(const RowSum& a, int64_t begin, int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) {
    const float* x = a.x + row * a.width;
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      const Vec pair = load(x + i, lanes) + load(x + a.width + i, lanes);
      const Vec next = load(x + 2 * a.width + i, lanes) + load(x + 3 * a.width + i, lanes);
      store(a.out + i, load(a.out + i, lanes) + (pair + next), lanes);
    });
  }
  for (; row < end; ++row) {
    const float* x = a.x + row * a.width;
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      store(a.out + i, load(a.out + i, lanes) + load(x + i, lanes), lanes);
    });
  }
}

// Float lanes over short blocks, doubles over blocks: as exact as doubles throughout, at memory speed.
void square_sum(const SquareSum& a, int64_t begin, int64_t end) {
  constexpr int64_t block = 4096;
  double total = 0;
  for (int64_t start = begin; start < end; start += block) {
    Sum squares;
    sweep(min(block, end - start), [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec value = load(a.x + start + i, lanes);
      squares.add(value * value, slot);
    });
    total += squares.total();
  }
  *a.result += total;
}

}  // namespace fuseline::FUSELINE_ISA
