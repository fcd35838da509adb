// Operators along the last axis: softmax, bias + dropout + residual, rotary, SwiGLU, sums of columns.
#include "ops/all.h"
#include "ops/dropout.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

constexpr int64_t kExpCost = 4;

void softmax(const Context& context) {
  const Tensor x = context.input(0);
  const SoftmaxForward arguments{x.floats(), context.output(0, x.shape), x.last()};
  for_range(context.parallel(), x.rows(), x.last() * kExpCost,
            [&](int64_t begin, int64_t end) { routines().softmax_forward(arguments, begin, end); });
}

void softmax_gradient(const Context& context) {
  const Tensor dy = context.input(0), y = context.input(1);
  const SoftmaxBackward arguments{dy.floats(), y.floats(), context.output(0, y.shape), y.last()};
  for_range(context.parallel(), y.rows(), y.last(),
            [&](int64_t begin, int64_t end) { routines().softmax_backward(arguments, begin, end); });
}

void dropout_add(const Context& context) {
  const Tensor x = context.input(0), bias = context.input(1), residual = context.input(2);
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
  const int64_t tokens = x.shape[0] * x.shape[1], table = cos.shape[0] * cos.shape[1];
  require(cos.last() % 2 == 0 && cos.last() <= x.last(),
          "cos " + text(cos.shape) + " must end in an even width of at most " + std::to_string(x.last()));
  require(cos.shape[0] == sin.shape[0], "cos " + text(cos.shape) + " and sin " + text(sin.shape) + " differ in shape");
  const Rotary arguments{x.floats(), cos.floats(), sin.floats(), context.output(0, x.shape), x.shape[2], x.last(),
                         cos.last(), table, inverse};
  for_range(context.parallel(), tokens, x.shape[2] * x.last(),
            [&](int64_t begin, int64_t end) { routines().rotary(arguments, begin, end); });
}

void rotary(const Context& context) { rotate(context, false); }
void rotary_gradient(const Context& context) { rotate(context, true); }

void swiglu(const Context& context) {
  const Tensor gate = context.input(0), up = context.input(1);
  const SwiGluForward arguments{gate.floats(), up.floats(), context.output(0, gate.shape)};
  for_range(context.parallel(), gate.size(), kExpCost,
            [&](int64_t begin, int64_t end) { routines().swiglu_forward(arguments, begin, end); });
}

void swiglu_gradient(const Context& context) {
  const Tensor dy = context.input(0), gate = context.input(1), up = context.input(2);
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
  const Port x{"x", "*R,N"}, y{"y", "*R,N"}, dy{"dy", "*R,N"}, bias{"bias", "N?"};
  const Port ratio{"ratio", "1"}, seed{"seed", "1", abi::kInt64}, key{"key", "1", abi::kInt64};
  const Port heads{"x", "B,S,H,D"}, cos{"cos", "B|1,S,R"}, sin{"sin", "B|1,S,R"};
  const Port gate{"gate", "*R"}, up{"up", "*R"};
  return {
      {"FusedSoftmax", {x}, {y}, {}, softmax},
      {"FusedSoftmaxGrad", {dy, y}, {{"dx", "*R,N"}}, {}, softmax_gradient, in_place<0>()},
      {"FusedBiasDropoutAdd",
       {x, bias, {"residual", "*R,N?"}, ratio, seed},
       {y, optional("key", "1", abi::kInt64)},
       {{"stream", true, 0}},
       dropout_add,
       in_place<0>()},
      {"FusedBiasDropoutAddGrad",
       {dy, bias, ratio, key},
       {optional("dx", "*R,N"), optional("dbias", "N?")},
       {},
       dropout_add_gradient,
       in_place<0>()},
      {"FusedRotary", {heads, cos, sin}, {{"y", "B,S,H,D"}}, {}, rotary},
      {"FusedRotaryGrad", {{"dy", "B,S,H,D"}, cos, sin}, {{"dx", "B,S,H,D"}}, {}, rotary_gradient},
      {"FusedSwiGlu", {gate, up}, {{"y", "*R"}}, {}, swiglu},
      {"FusedSwiGluGrad", {{"dy", "*R"}, gate, up}, {optional("dgate", "*R"), optional("dup", "*R")}, {}, swiglu_gradient, in_place<0>()},
      {"FusedColumnSum", {x}, {{"y", "N"}}, {}, column_sum},
  };
}

}  // namespace fuseline
