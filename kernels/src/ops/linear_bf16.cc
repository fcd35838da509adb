// A linear layer whose products are in bf16, added up in floats: forward, and all its gradients from one operator.
#include <cstring>

#include "ops/all.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

enum Option { kTransposed };

constexpr int64_t kTileColumns = 2 * kBf16Items;  // with as many rows of a block of the depth, half a core's cache
constexpr int64_t kPackCost = 2;

int64_t rounded_up(int64_t count) { return (count + kBf16Items - 1) / kBf16Items * kBf16Items; }

// A matrix [rows, columns] in memory, of floats or of bf16.
struct Matrix {
  const float* floats;
  const uint16_t* bf16;
  int64_t rows, columns;
};

Matrix matrix(const float* data, int64_t rows, int64_t columns) { return {data, nullptr, rows, columns}; }

// An operand: the rows of a matrix are its items, and the columns the depth, or the other way round.
Bf16Pack rows_of(const Matrix& m) { return {m.floats, m.bf16, nullptr, m.rows, m.columns, m.columns, true, false, nullptr}; }
Bf16Pack columns_of(const Matrix& m) { return {m.floats, m.bf16, nullptr, m.columns, m.rows, m.columns, false, false, nullptr}; }

void pack(const Parallel& parallel, const Bf16Pack& operand) {
  const int64_t chunks = (operand.items + kBf16Items - 1) / kBf16Items;
  for_range(parallel, chunks, kBf16Items * operand.depth * kPackCost, [&](int64_t begin, int64_t end) {
    routines().bf16_pack(operand, begin * kBf16Items, std::min(end * kBf16Items, operand.items));
  });
}

// c[left's items, right's items] = bias + left·rightᵀ over their common depth. Runs in the node's scratch memory.
void multiply(const Parallel& parallel, Bf16Pack left, Bf16Pack right, const float* bias, float* c) {
  const int64_t rows = left.items, columns = right.items;
  if (c == nullptr && left.copy == nullptr) return;
  left.left = true;
  const int64_t left_size = routines().bf16_pack_size(left, 0, rounded_up(rows));
  const int64_t right_size = routines().bf16_pack_size(right, 0, rounded_up(columns));
  float* memory = run_scratch(rounded_up(columns) + left_size + right_size);
  float* start = memory;
  left.to = reinterpret_cast<uint32_t*>(start + rounded_up(columns));
  right.to = left.to + left_size;
  std::memset(start, 0, sizeof(float) * rounded_up(columns));
  if (bias != nullptr) std::memcpy(start, bias, sizeof(float) * columns);
  pack(parallel, left);
  pack(parallel, right);
  const int64_t down = (rows + kBf16Items - 1) / kBf16Items, across = (columns + kTileColumns - 1) / kTileColumns;
  const Bf16Product shared{left.to, right.to, start, c, columns, left.depth, 0, 0};
  for_chunks(parallel, down * across, down * across, [&](int64_t tile, int64_t, int64_t) {
    Bf16Product part = shared;
    part.first_column = tile % across * kTileColumns;
    part.last_column = std::min(columns, part.first_column + kTileColumns);
    const int64_t begin = tile / across * kBf16Items;
    routines().bf16_product(part, begin, std::min(rows, begin + kBf16Items));
  });
}

// Whether the weight is [outputs, inputs]: the letters of the contract alone cannot tell where both are equal.
bool outputs_first(bool transposed, const Tensor& weight, int64_t inputs) {
  require(weight.shape[transposed ? 1 : 0] == inputs,
          std::string("weight ") + text(weight.shape) + " is not " + (transposed ? "[outputs, " : "[") +
              std::to_string(inputs) + (transposed ? "]" : ", outputs]"));
  return transposed;
}

Shape with_last(Shape shape, int64_t last) {
  shape.back() = last;
  return shape;
}

void linear(const Context& context) {
  const Tensor x = context.input(0), weight = context.input(1), bias = context.input(2);
  const bool transposed = outputs_first(context.attribute(kTransposed) != 0, weight, x.last());
  const int64_t inputs = x.last(), outputs = weight.shape[transposed ? 0 : 1];
  const int64_t rows = inputs > 0 ? x.rows() : elements(with_last(x.shape, 1));
  float* y = context.output(0, with_last(x.shape, outputs));
  auto* saved = static_cast<uint16_t*>(context.output_data(1, x.shape));
  if (float* state = context.output(2, {1})) *state = transposed ? 1.0f : 0.0f;
  const Matrix w = matrix(weight.floats(), weight.shape[0], weight.shape[1]);
  Bf16Pack left = rows_of(matrix(x.floats(), rows, inputs));
  left.copy = saved;
  multiply(context.parallel(), left, transposed ? rows_of(w) : columns_of(w), bias.floats(), y);
}

void linear_gradient(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), weight = context.input(2), bias = context.input(3);
  const bool transposed = outputs_first(*context.input(4).floats() != 0, weight, x.last());
  const int64_t outputs = dy.last(), inputs = x.last();
  require(weight.shape[transposed ? 0 : 1] == outputs, "weight " + text(weight.shape) + " does not give dy " + text(dy.shape));
  const int64_t rows = elements(with_last(dy.shape, 1));
  const Matrix slopes = matrix(dy.floats(), rows, outputs);
  const Matrix w = matrix(weight.floats(), weight.shape[0], weight.shape[1]);
  const Matrix saved{nullptr, static_cast<const uint16_t*>(x.data), rows, inputs};
  multiply(context.parallel(), rows_of(slopes), transposed ? columns_of(w) : rows_of(w), nullptr,
           context.output(0, x.shape));
  float* dweight = context.output(1, weight.shape);
  if (transposed)
    multiply(context.parallel(), columns_of(slopes), columns_of(saved), nullptr, dweight);
  else
    multiply(context.parallel(), columns_of(saved), columns_of(slopes), nullptr, dweight);
  float* dbias = context.output(2, bias.shape);
  if (dbias == nullptr) return;
  reduce_rows(context, rows, outputs, {dbias}, [&](float* partial, int64_t begin, int64_t end) {
    routines().row_sum({dy.floats(), partial, outputs}, begin, end);
  });
}

}  // namespace

Definitions linear_definitions() {
  const Port weight{"weight", "N,K/K,N"}, bias{"bias", "N?"};
  return {
      {"FusedLinearBf16",
       {{"x", "*R,K"}, weight, bias},
       {{"y", "*R,N"}, optional("rounded", "*R,K", abi::kBfloat16), optional("state", "1")},
       {{"transposed", true, 1}},
       linear},
      {"FusedLinearBf16Grad",
       {{"dy", "*R,N"}, {"rounded", "*R,K", abi::kBfloat16}, weight, bias, {"state", "1"}},
       {optional("dx", "*R,K"), optional("dweight", "N,K/K,N"), optional("dbias", "N?")},
       {},
       linear_gradient},
  };
}

}  // namespace fuseline
