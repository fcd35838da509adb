// aᵀ·b over all rows: the gradient of a linear layer's weight, with its bias's gradient on the way.
#include <cstring>

#include "compute/kernels.h"
#include "ops/all.h"
#include "scratch.h"

namespace fuseline {
namespace {

// A tile of c stays in a core's cache while the depth passes by: enough of them to share out evenly, each large enough
// to be worth packing for.
constexpr int64_t kTiles = 16, kSmallestTile = 4, kLargestTile = 16, kTileColumns = 768;  // tiles in blocks of rows

int64_t pieces(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

int64_t tiles_down(int64_t blocks, int64_t across) {
  const int64_t wanted = std::min(pieces(kTiles, across), blocks / kSmallestTile);
  return std::max<int64_t>({wanted, pieces(blocks, kLargestTile), 1});
}

void weight_gradient(const Context& context) {
  const Tensor a = context.input(0), b = context.input(1);
  const int64_t rows = a.last(), columns = b.last(), depth = rows > 0 ? a.rows() : b.rows();
  WeightGradient shared{a.floats(), b.floats(), context.output(0, {rows, columns}), context.output(1, {rows}), nullptr,
                        nullptr, depth, rows, columns, 0, columns};
  if (depth == 0) {  // an empty sum
    if (shared.c != nullptr) std::memset(shared.c, 0, sizeof(float) * rows * columns);
    if (shared.sums != nullptr) std::memset(shared.sums, 0, sizeof(float) * rows);
    return;
  }
  shared.panels = run_scratch(routines().weight_gradient_panels(shared, 0, columns));
  for_range(context.parallel(), pieces(depth, kWeightGradientDepth), kWeightGradientDepth * columns,
            [&](int64_t begin, int64_t end) { routines().weight_gradient_pack(shared, begin, end); });
  const int64_t blocks = pieces(rows, kWeightGradientRows), across = std::max<int64_t>(pieces(columns, kTileColumns), 1);
  const int64_t down = tiles_down(blocks, across);
  for_chunks(context.parallel(), down * across, down * across, [&](int64_t index, int64_t, int64_t) {
    const int64_t row = index / across, first = blocks * row / down, last = blocks * (row + 1) / down;
    WeightGradient arguments = shared;
    const int64_t begin = first * kWeightGradientRows, end = std::min(rows, last * kWeightGradientRows);
    arguments.scratch = task_scratch(routines().weight_gradient_scratch(arguments, begin, end));
    arguments.first_column = index % across * kTileColumns;
    arguments.last_column = std::min(columns, arguments.first_column + kTileColumns);
    routines().weight_gradient(arguments, begin, end);
  });
}

}  // namespace

Definitions weight_gradient_definitions() {
  return {{"FusedWeightGrad",
           {{"a", "*R,N"}, {"b", "*R,K"}},
           {{"c", "N,K"}, optional("a_sum", "N")},
           {},
           weight_gradient}};
}

}  // namespace fuseline
