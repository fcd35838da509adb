#include "compute/kernels.h"
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

namespace {

template <class Lanes>
FL_INLINE void adamw_at(const AdamWUpdate& a, int64_t i, Lanes lanes) {
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
}

constexpr int64_t kGroup = 4 * W;

// Whether gradient and moments of a group are all exactly zero: rows of an embedding that no batch has touched.
FL_INLINE bool untouched(const AdamWUpdate& a, int64_t i) {
  Int bits = {};
#pragma GCC unroll 4
  for (int64_t offset = 0; offset < kGroup; offset += W)
    bits |= (Int)load(a.gradient + i + offset) | (Int)load(a.first + i + offset) | (Int)load(a.second + i + offset);
  typedef int64_t Wide __attribute__((vector_size(W * 4)));
  const Wide wide = (Wide)bits;
  int64_t any = 0;
  for (int lane = 0; lane < W / 2; ++lane) any |= wide[lane];
  return any == 0;
}

}  // namespace

// An untouched group only decays, and its moments stay zero: the full update would say the same, and writing less is
// worth more than the test costs.
void adamw_update(const AdamWUpdate& a, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + kGroup <= end; i += kGroup) {
    if (a.gradient[i] == 0 && untouched(a, i)) {  // one look is enough for dense gradients
      if (a.decay != 1.0f)
        for (int64_t offset = 0; offset < kGroup; offset += W)
          store(a.parameter + i + offset, load(a.parameter + i + offset) * a.decay);
      continue;
    }
#pragma GCC unroll 4
    for (int64_t offset = 0; offset < kGroup; offset += W) adamw_at(a, i + offset, Full{});
  }
  for (; i + W <= end; i += W) adamw_at(a, i, Full{});
  if (i < end) adamw_at(a, i, Part{end - i});
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
