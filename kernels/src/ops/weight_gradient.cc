// aᵀ·b over all rows: the gradient of a linear layer's weight, with its bias's gradient on the way.
#include <cstring>

#include "compute/kernels.h"
#include "ops/all.h"
#include "scratch.h"

namespace fuseline {
namespace {

constexpr int64_t kRowBlock = 6;
// A tile of c stays in a core's cache while the depth passes by.
constexpr int64_t kTiles = 16, kSmallestTile = 24, kLargestTile = 96, kTileColumns = 768;

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Enough tiles to share out evenly, large enough to be worth packing for.
int64_t tile_rows(int64_t rows, int64_t column_tiles) {
  const int64_t wanted = std::max<int64_t>(kTiles / column_tiles, 2);
  return std::clamp(rounded_up((rows + wanted - 1) / wanted, kRowBlock), kSmallestTile, kLargestTile);
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
  shared.panels = panel_memory.floats(depth * rounded_up(columns, routines().panel));
  const int64_t blocks = (depth + kWeightGradientDepth - 1) / kWeightGradientDepth;
  for_range(context.parallel(), blocks, kWeightGradientDepth * columns,
            [&](int64_t begin, int64_t end) { routines().weight_gradient_pack(shared, begin, end); });
  const int64_t across = (columns + kTileColumns - 1) / kTileColumns, tile = tile_rows(rows, across);
  const int64_t tiles = (rows + tile - 1) / tile * across;
  for_chunks(context.parallel(), tiles, tiles, [&](int64_t, int64_t begin, int64_t end) {
    thread_local Scratch left_memory;
    for (int64_t index = begin; index < end; ++index) {
      WeightGradient arguments = shared;
      arguments.scratch = left_memory.floats(kWeightGradientDepth * tile);
      arguments.first_column = index % across * kTileColumns;
      arguments.last_column = std::min(columns, arguments.first_column + kTileColumns);
      const int64_t first_row = index / across * tile;
      routines().weight_gradient(arguments, first_row, std::min(rows, first_row + tile));
    }
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
