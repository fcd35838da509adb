// LayerNorm and RMSNorm over the last axis.
#include "compute/kernels.h"
#include "ops/all.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

void require_width(const Tensor& x, const Tensor& scale) {
  require(scale.size() == x.last(), "scale has shape " + text(scale.shape) + ", but the last axis of x " +
                                        text(x.shape) + " needs " + std::to_string(x.last()) + " values");
}

Shape statistics_shape(const Tensor& x) {
  require(!x.shape.empty(), "x is a scalar; it needs at least one axis to normalise over");
  return Shape(x.shape.begin(), x.shape.end() - 1);
}

void layer_norm(const Context& context) {
  const Tensor x = context.input(0), scale = context.input(1), bias = context.input(2);
  require_width(x, scale);
  std::vector<float> unwanted;  // statistics the graph has no use for still need a place
  const Shape statistics = statistics_shape(x);
  float* mean = context.output(1, statistics);
  float* inv_std = context.output(2, statistics);
  if (mean == nullptr || inv_std == nullptr) unwanted.resize(2 * x.rows());
  if (mean == nullptr) mean = unwanted.data();
  if (inv_std == nullptr) inv_std = unwanted.data() + x.rows();
  const LayerNormForward arguments{x.floats(), scale.floats(),  bias.floats(),
                                   context.output(0, x.shape), mean, inv_std,
                                   x.last(),   static_cast<float>(context.attribute(0))};
  for_range(context.parallel(), x.rows(), x.last(),
            [&](int64_t begin, int64_t end) { routines().layer_norm_forward(arguments, begin, end); });
}

void layer_norm_gradient(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), scale = context.input(2);
  require_width(x, scale);
  const int64_t width = x.last();
  float* dx = context.output(0, x.shape);
  float* dscale = context.output(1, scale.shape);
  float* dbias = context.output(2, scale.shape);
  const LayerNormBackward shared{dy.floats(), x.floats(), scale.floats(), context.input(3).floats(),
                                 context.input(4).floats(), dx, nullptr, nullptr, width};
  reduce_rows(context, x.rows(), width, {dscale, dbias}, [&](float* partial, int64_t begin, int64_t end) {
    LayerNormBackward arguments = shared;
    if (dscale != nullptr) arguments.dscale = partial;
    if (dbias != nullptr) arguments.dbias = partial + width;
    routines().layer_norm_backward(arguments, begin, end);
  });
}

void rms_norm(const Context& context) {
  const Tensor x = context.input(0), scale = context.input(1);
  require_width(x, scale);
  std::vector<float> unwanted;
  float* inv_rms = context.output(1, statistics_shape(x));
  if (inv_rms == nullptr) {
    unwanted.resize(x.rows());
    inv_rms = unwanted.data();
  }
  const auto offset = static_cast<float>(context.attribute(1));
  if (float* state = context.output(2, {1})) *state = offset;
  const RmsNormForward arguments{x.floats(), scale.floats(), context.output(0, x.shape), inv_rms, x.last(),
                                 static_cast<float>(context.attribute(0)), offset};
  for_range(context.parallel(), x.rows(), x.last(),
            [&](int64_t begin, int64_t end) { routines().rms_norm_forward(arguments, begin, end); });
}

void rms_norm_gradient(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), scale = context.input(2);
  require_width(x, scale);
  float* dx = context.output(0, x.shape);
  float* dscale = context.output(1, scale.shape);
  const RmsNormBackward shared{dy.floats(), x.floats(), scale.floats(), context.input(3).floats(), dx, nullptr,
                               x.last(), *context.input(4).floats()};
  reduce_rows(context, x.rows(), x.last(), {dscale}, [&](float* partial, int64_t begin, int64_t end) {
    RmsNormBackward arguments = shared;
    if (dscale != nullptr) arguments.dscale = partial;
    routines().rms_norm_backward(arguments, begin, end);
  });
}

}  // namespace

Definitions norm_definitions() {
  const Input tensor;
  return {
      {"FusedLayerNorm",
       {tensor, tensor, tensor},
       {{same_as(0)}, optional(without_last(0)), optional(without_last(0))},
       {{"epsilon", false, 1e-5}},
       layer_norm},
      {"FusedLayerNormGrad",
       {tensor, tensor, tensor, tensor, tensor},
       {optional(same_as(1)), optional(same_as(2)), optional(same_as(2))},
       {},
       layer_norm_gradient},
      {"FusedRmsNorm",
       {tensor, tensor},
       {{same_as(0)}, optional(without_last(0)), optional(fixed(1))},
       {{"epsilon", false, 1e-6}, {"offset", false, 0}},
       rms_norm},
      {"FusedRmsNormGrad",
       {tensor, tensor, tensor, tensor, tensor},
       {optional(same_as(1)), optional(same_as(2))},
       {},
       rms_norm_gradient},
  };
}

}  // namespace fuseline
