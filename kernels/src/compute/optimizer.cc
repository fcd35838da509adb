#include "compute/kernels.h"
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

void adamw_update(const AdamWUpdate& a, int64_t begin, int64_t end) {
  sweep(end - begin, [&](int64_t offset, auto lanes, int) FL_LAMBDA {
    const int64_t i = begin + offset;
    const Vec gradient = load(a.gradient + i, lanes) * a.gradient_scale;
    Vec first = load(a.first + i, lanes);
    Vec second = load(a.second + i, lanes);
    Vec parameter = load(a.parameter + i, lanes) * a.decay;
    first += (gradient - first) * a.one_minus_beta1;
    second = second * a.beta2 + gradient * gradient * a.one_minus_beta2;
    const Vec denominator = sqrt(second) * a.inverse_root_correction2 + a.epsilon;
    parameter -= a.step_size * first / denominator;
    store(a.first + i, first, lanes);
    store(a.second + i, second, lanes);
    store(a.parameter + i, parameter, lanes);
    if (a.zero_gradient) store(a.gradient + i, Vec{}, lanes);
  });
}

void sgd_update(const SgdUpdate& a, int64_t begin, int64_t end) {
  sweep(end - begin, [&](int64_t offset, auto lanes, int) FL_LAMBDA {
    const int64_t i = begin + offset;
    Vec parameter = load(a.parameter + i, lanes);
    Vec gradient = load(a.gradient + i, lanes) * a.gradient_scale + parameter * a.weight_decay;
    if (a.momentum_buffer != nullptr) {
      Vec buffer = gradient;
      if (!a.first_step) buffer = load(a.momentum_buffer + i, lanes) * a.momentum + gradient * (1.0f - a.dampening);
      store(a.momentum_buffer + i, buffer, lanes);
      gradient = a.nesterov ? gradient + buffer * a.momentum : buffer;
    }
    store(a.parameter + i, parameter - gradient * a.learning_rate, lanes);
    if (a.zero_gradient) store(a.gradient + i, Vec{}, lanes);
  });
}

}  // namespace fuseline::FUSELINE_ISA
