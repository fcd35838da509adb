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
  thread_local Scratch panel_memory;
  const Tensor a = context.input(0), b = context.input(1);
  require(a.rows() == b.rows(), "a " + text(a.shape) + " and b " + text(b.shape) + " differ in their number of rows");
  const int64_t depth = a.rows(), rows = a.last(), columns = b.last();
  WeightGradient shared{a.floats(), b.floats(), context.output(0, {rows, columns}), context.output(1, {rows}), nullptr,
                        nullptr, depth, rows, columns, 0, columns};
  if (depth == 0) {  // an empty sum
    if (shared.c != nullptr) std::memset(shared.c, 0, sizeof(float) * rows * columns);
    if (shared.sums != nullptr) std::memset(shared.sums, 0, sizeof(float) * rows);
    return;
  }
  shared.panels = panel_memory.floats(depth * pieces(columns, routines().panel) * routines().panel);
  for_range(context.parallel(), pieces(depth, kWeightGradientDepth), kWeightGradientDepth * columns,
            [&](int64_t begin, int64_t end) { routines().weight_gradient_pack(shared, begin, end); });
  const int64_t blocks = pieces(rows, kWeightGradientRows), across = pieces(columns, kTileColumns);
  const int64_t down = tiles_down(blocks, across);
  for_chunks(context.parallel(), down * across, down * across, [&](int64_t index, int64_t, int64_t) {
    thread_local Scratch left_memory;
    const int64_t row = index / across, first = blocks * row / down, last = blocks * (row + 1) / down;
    WeightGradient arguments = shared;
    arguments.scratch = left_memory.floats((last - first) * kWeightGradientScratch);
    arguments.first_column = index % across * kTileColumns;
    arguments.last_column = std::min(columns, arguments.first_column + kTileColumns);
    routines().weight_gradient(arguments, first * kWeightGradientRows, std::min(rows, last * kWeightGradientRows));
  });
}

std::optional<Dimensions> product(const InputShapes& shapes) {
  if (shapes[0].empty() || shapes[1].empty()) return std::nullopt;
  return Dimensions{shapes[0].back(), shapes[1].back()};
}

}  // namespace

Definitions weight_gradient_definitions() {
  return {{"FusedWeightGrad", {Input{}, Input{}}, {{product}, optional(last_of(0))}, {}, weight_gradient}};
}

}  // namespace fuseline
