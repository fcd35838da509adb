// Operators along the last axis: softmax, bias + dropout + residual, rotary, SwiGLU, sums of columns.
#include "ops/all.h"
#include "ops/dropout.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

constexpr int64_t kExpCost = 4;

void require_same(const Tensor& a, const Tensor& b, const char* names) {
  require(a.shape == b.shape, std::string(names) + " differ in shape: " + text(a.shape) + " and " + text(b.shape));
}

void softmax(const Context& context) {
  const Tensor x = context.input(0);
  const SoftmaxForward arguments{x.floats(), context.output(0, x.shape), x.last()};
  for_range(context.parallel(), x.rows(), x.last() * kExpCost,
            [&](int64_t begin, int64_t end) { routines().softmax_forward(arguments, begin, end); });
}

void softmax_gradient(const Context& context) {
  const Tensor dy = context.input(0), y = context.input(1);
  require_same(dy, y, "dy and y");
  const SoftmaxBackward arguments{dy.floats(), y.floats(), context.output(0, y.shape), y.last()};
  for_range(context.parallel(), y.rows(), y.last(),
            [&](int64_t begin, int64_t end) { routines().softmax_backward(arguments, begin, end); });
}

void dropout_add(const Context& context) {
  const Tensor x = context.input(0), bias = context.input(1), residual = context.input(2);
  if (bias) require(bias.size() == x.last(), "bias " + text(bias.shape) + " does not fit x " + text(x.shape));
  if (residual) require_same(x, residual, "x and residual");
  const int64_t key = dropout_key(*context.input(4).ints(), static_cast<int64_t>(context.attribute(0)));
  if (void* output = context.output_data(1, {1})) *static_cast<int64_t*>(output) = key;
  const DropoutAddForward arguments{x.floats(), bias.floats(), residual.floats(), context.output(0, x.shape),
                                    x.last(),   dropout_of(*context.input(3).floats(), key)};
  for_range(context.parallel(), x.rows(), x.last(),
            [&](int64_t begin, int64_t end) { routines().dropout_add_forward(arguments, begin, end); });
}

void dropout_add_gradient(const Context& context) {
  const Tensor dy = context.input(0), bias = context.input(1);
  float* dx = context.output(0, dy.shape);
  float* dbias = context.output(1, bias.shape);
  const DropoutAddBackward shared{dy.floats(), dx, nullptr, dy.last(),
                                  dropout_of(*context.input(2).floats(), *context.input(3).ints())};
  reduce_rows(context, dy.rows(), dy.last(), {dbias}, [&](float* partial, int64_t begin, int64_t end) {
    DropoutAddBackward arguments = shared;
    if (dbias != nullptr) arguments.dbias = partial;
    routines().dropout_add_backward(arguments, begin, end);
  });
}

void rotate(const Context& context, bool inverse) {
  const Tensor x = context.input(0), cos = context.input(1), sin = context.input(2);
  require(x.shape.size() == 4, "x must be [batch, tokens, heads, width], not " + text(x.shape));
  require_same(cos, sin, "cos and sin");
  const int64_t tokens = x.shape[0] * x.shape[1], table = cos.rows();
  require(cos.last() % 2 == 0 && cos.last() <= x.last(),
          "cos " + text(cos.shape) + " must end in an even width of at most " + std::to_string(x.last()));
  require(table == tokens || table == x.shape[1], "cos " + text(cos.shape) + " does not fit the tokens of " + text(x.shape));
  const Rotary arguments{x.floats(), cos.floats(), sin.floats(), context.output(0, x.shape), x.shape[2], x.last(),
                         cos.last(), table, inverse};
  for_range(context.parallel(), tokens, x.shape[2] * x.last(),
            [&](int64_t begin, int64_t end) { routines().rotary(arguments, begin, end); });
}

void rotary(const Context& context) { rotate(context, false); }
void rotary_gradient(const Context& context) { rotate(context, true); }

void swiglu(const Context& context) {
  const Tensor gate = context.input(0), up = context.input(1);
  require_same(gate, up, "gate and up");
  const SwiGluForward arguments{gate.floats(), up.floats(), context.output(0, gate.shape)};
  for_range(context.parallel(), gate.size(), kExpCost,
            [&](int64_t begin, int64_t end) { routines().swiglu_forward(arguments, begin, end); });
}

void swiglu_gradient(const Context& context) {
  const Tensor dy = context.input(0), gate = context.input(1), up = context.input(2);
  require_same(gate, up, "gate and up");
  require_same(dy, gate, "dy and gate");
  const SwiGluBackward arguments{dy.floats(), gate.floats(), up.floats(), context.output(0, gate.shape),
                                 context.output(1, up.shape)};
  for_range(context.parallel(), gate.size(), kExpCost,
            [&](int64_t begin, int64_t end) { routines().swiglu_backward(arguments, begin, end); });
}

void column_sum(const Context& context) {
  const Tensor x = context.input(0);
  float* y = context.output(0, {x.last()});
  reduce_rows(context, x.rows(), x.last(), {y}, [&](float* partial, int64_t begin, int64_t end) {
    routines().row_sum({x.floats(), partial, x.last()}, begin, end);
  });
}

}  // namespace

Definitions row_definitions() {
  const Input tensor;
  return {
      {"FusedSoftmax", {tensor}, {{same_as(0)}}, {}, softmax},
      {"FusedSoftmaxGrad", {tensor, tensor}, {{same_as(1)}}, {}, softmax_gradient},
      {"FusedBiasDropoutAdd",
       {tensor, tensor, tensor, tensor, kIntInput},
       {{same_as(0)}, {fixed(1), abi::kInt64, abi::kOptional}},
       {{"stream", true, 0}},
       dropout_add},
      {"FusedBiasDropoutAddGrad",
       {tensor, tensor, tensor, kIntInput},
       {optional(same_as(0)), optional(same_as(1))},
       {},
       dropout_add_gradient},
      {"FusedRotary", {tensor, tensor, tensor}, {{same_as(0)}}, {}, rotary},
      {"FusedRotaryGrad", {tensor, tensor, tensor}, {{same_as(0)}}, {}, rotary_gradient},
      {"FusedSwiGlu", {tensor, tensor}, {{same_as(0)}}, {}, swiglu},
      {"FusedSwiGluGrad", {tensor, tensor, tensor}, {optional(same_as(1)), optional(same_as(2))}, {}, swiglu_gradient},
      {"FusedColumnSum", {tensor}, {{last_of(0)}}, {}, column_sum},
  };
}

}  // namespace fuseline
