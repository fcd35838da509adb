// gelu(x + bias), by the error function and by its tanh approximation.
#include "ops/all.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

constexpr int64_t kCost = 4;  // an element costs as much as four copied ones

int64_t width_of(const Tensor& x, const Tensor& bias) {
  if (!bias) return x.last();
  require(bias.size() == x.last(), "bias has shape " + text(bias.shape) + ", but the last axis of x " +
                                       text(x.shape) + " needs " + std::to_string(x.last()) + " values");
  return x.last();
}

template <auto Routine>
void forward(const Context& context) {
  const Tensor x = context.input(0), bias = context.input(1);
  const GeluForward arguments{x.floats(), bias.floats(), context.output(0, x.shape), width_of(x, bias)};
  for_range(context.parallel(), x.rows(), arguments.width * kCost,
            [&](int64_t begin, int64_t end) { (routines().*Routine)(arguments, begin, end); });
}

template <auto Routine>
void backward(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), bias = context.input(2);
  float* dbias = context.output(1, bias.shape);
  const GeluBackward shared{dy.floats(), x.floats(), bias.floats(), context.output(0, x.shape), nullptr,
                            width_of(x, bias)};
  reduce_rows(context, x.rows(), x.last(), {dbias}, [&](float* partial, int64_t begin, int64_t end) {
    GeluBackward arguments = shared;
    if (dbias != nullptr) arguments.dbias = partial;
    (routines().*Routine)(arguments, begin, end);
  });
}

}  // namespace

Definitions gelu_definitions() {
  const Input tensor;
  const std::vector<Input> forward_inputs = {tensor, tensor};
  const std::vector<Input> backward_inputs = {tensor, tensor, tensor};
  const std::vector<Output> gradients = {{same_as(1)}, optional(same_as(2))};
  return {
      {"FusedBiasGelu", forward_inputs, {{same_as(0)}}, {}, forward<&Routines::gelu_erf_forward>},
      {"FusedBiasGeluGrad", backward_inputs, gradients, {}, backward<&Routines::gelu_erf_backward>},
      {"FusedBiasGeluTanh", forward_inputs, {{same_as(0)}}, {}, forward<&Routines::gelu_tanh_forward>},
      {"FusedBiasGeluTanhGrad", backward_inputs, gradients, {}, backward<&Routines::gelu_tanh_backward>},
  };
}

}  // namespace fuseline
