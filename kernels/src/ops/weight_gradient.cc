// aᵀ·b over all rows: the gradient of a linear layer's weight, with its bias's gradient on the way.
#include "compute/kernels.h"
#include "ops/all.h"
#include "scratch.h"

namespace fuseline {
namespace {

constexpr int64_t kRowBlock = 6;
constexpr int64_t kTiles = 16, kSmallestTile = 24, kLargestTile = 96;  // rows of c per task

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t tile_rows(int64_t rows) {
  return std::clamp(rounded_up((rows + kTiles - 1) / kTiles, kRowBlock), kSmallestTile, kLargestTile);
}

void weight_gradient(const Context& context) {
  thread_local Scratch panel_memory;
  const Tensor a = context.input(0), b = context.input(1);
  require(a.rows() == b.rows(), "a " + text(a.shape) + " and b " + text(b.shape) + " differ in their number of rows");
  const int64_t depth = a.rows(), rows = a.last(), columns = b.last();
  WeightGradient shared{a.floats(), b.floats(), context.output(0, {rows, columns}), context.output(1, {rows}), nullptr,
                        nullptr, depth, rows, columns};
  shared.panels = panel_memory.floats(depth * rounded_up(columns, routines().panel));
  const int64_t blocks = (depth + kWeightGradientDepth - 1) / kWeightGradientDepth;
  for_range(context.parallel(), blocks, kWeightGradientDepth * columns,
            [&](int64_t begin, int64_t end) { routines().weight_gradient_pack(shared, begin, end); });
  const int64_t tile = tile_rows(rows), tiles = (rows + tile - 1) / tile;
  for_chunks(context.parallel(), tiles, tiles, [&](int64_t, int64_t begin, int64_t end) {
    thread_local Scratch left_memory;
    for (int64_t index = begin; index < end; ++index) {
      WeightGradient arguments = shared;
      arguments.scratch = left_memory.floats(kWeightGradientDepth * tile);
      routines().weight_gradient(arguments, index * tile, std::min(rows, (index + 1) * tile));
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
