// LayerNorm and RMSNorm over the last axis.
#include "ops/all.h"
#include "ops/partials.h"

namespace fuseline {
namespace {

// The shape of one statistic per row; a row of nothing has none.
Shape statistics_shape(const Tensor& x) {
  require(x.last() > 0, "x " + text(x.shape) + " has an empty last axis: there is nothing to normalise over");
  return Shape(x.shape.begin(), x.shape.end() - 1);
}

void layer_norm(const Context& context) {
  const Tensor x = context.input(0), scale = context.input(1), bias = context.input(2);
  const Shape statistics = statistics_shape(x);
  float* unwanted = run_scratch(2 * x.rows());  // statistics the graph has no use for still need a place
  float* mean = context.output(1, statistics);
  float* inv_std = context.output(2, statistics);
  if (mean == nullptr) mean = unwanted;
  if (inv_std == nullptr) inv_std = unwanted + x.rows();
  const LayerNormForward arguments{x.floats(), scale.floats(),  bias.floats(),
                                   context.output(0, x.shape), mean, inv_std,
                                   x.last(),   static_cast<float>(context.attribute(0))};
  for_range(context.parallel(), x.rows(), x.last(),
            [&](int64_t begin, int64_t end) { routines().layer_norm_forward(arguments, begin, end); });
}

void layer_norm_gradient(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), scale = context.input(2);
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
  float* inv_rms = context.output(1, statistics_shape(x));
  if (inv_rms == nullptr) inv_rms = run_scratch(x.rows());
  const auto offset = static_cast<float>(context.attribute(1));
  if (float* state = context.output(2, {1})) *state = offset;
  const RmsNormForward arguments{x.floats(), scale.floats(), context.output(0, x.shape), inv_rms, x.last(),
                                 static_cast<float>(context.attribute(0)), offset};
  for_range(context.parallel(), x.rows(), x.last(),
            [&](int64_t begin, int64_t end) { routines().rms_norm_forward(arguments, begin, end); });
}

void rms_norm_gradient(const Context& context) {
  const Tensor dy = context.input(0), x = context.input(1), scale = context.input(2);
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
  const Port x{"x", "*R,N"}, dy{"dy", "*R,N"}, scale{"scale", "N"};
  return {
      {"FusedLayerNorm",
       {x, scale, {"bias", "N?"}},
       {{"y", "*R,N"}, optional("mean", "*R"), optional("inv_std", "*R")},
       {{"epsilon", false, 1e-5}},
       layer_norm},
      {"FusedLayerNormGrad",
       {dy, x, scale, {"mean", "*R"}, {"inv_std", "*R"}},
       {optional("dx", "*R,N"), optional("dscale", "N"), optional("dbias", "N")},
       {},
       layer_norm_gradient,
       in_place<0>()},
      {"FusedRmsNorm",
       {x, scale},
       {{"y", "*R,N"}, optional("inv_rms", "*R"), optional("state", "1")},
       {{"epsilon", false, 1e-6}, {"offset", false, 0}},
       rms_norm},
      {"FusedRmsNormGrad",
       {dy, x, scale, {"inv_rms", "*R"}, {"state", "1"}},
       {optional("dx", "*R,N"), optional("dscale", "N")},
       {},
       rms_norm_gradient,
       in_place<0>()},
  };
}

}  // namespace fuseline
