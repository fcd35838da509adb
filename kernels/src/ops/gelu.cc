// gelu(x + bias), by the error function and by its tanh approximation.
#include "ops/all.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

constexpr int64_t kCost = 4;  // an element costs as much as four copied ones

template <auto Routine>
void forward(const Context& context) {
  const Tensor x = context.input(0), bias = context.input(1);
  const GeluForward arguments{x.floats(), bias.floats(), context.output(0, x.shape), x.last()};
  for_range(context.parallel(), x.rows(), arguments.width * kCost,
            [&](int64_t begin, int64_t end) { (routines().*Routine)(arguments, begin, end); });
}

template <auto Routine>
void backward(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), bias = context.input(2);
  float* dbias = context.output(1, bias.shape);
  const GeluBackward shared{dy.floats(), x.floats(), bias.floats(), context.output(0, x.shape), nullptr,
                            x.last()};
  reduce_rows(context, x.rows(), x.last(), {dbias}, [&](float* partial, int64_t begin, int64_t end) {
    GeluBackward arguments = shared;
    if (dbias != nullptr) arguments.dbias = partial;
    (routines().*Routine)(arguments, begin, end);
  });
}

}  // namespace

Definitions gelu_definitions() {
  const Port x{"x", "*R,N"}, bias{"bias", "N?"}, dy{"dy", "*R,N"}, y{"y", "*R,N"};
  const std::vector<Port> gradients = {optional("dx", "*R,N"), optional("dbias", "N?")};
  return {
      {"FusedBiasGelu", {x, bias}, {y}, {}, forward<&Routines::gelu_erf_forward>, in_place<0>()},
      {"FusedBiasGeluGrad", {dy, x, bias}, gradients, {}, backward<&Routines::gelu_erf_backward>, in_place<0>()},
      {"FusedBiasGeluTanh", {x, bias}, {y}, {}, forward<&Routines::gelu_tanh_forward>, in_place<0>()},
      {"FusedBiasGeluTanhGrad", {dy, x, bias}, gradients, {}, backward<&Routines::gelu_tanh_backward>, in_place<0>()},
  };
}

}  // namespace fuseline
