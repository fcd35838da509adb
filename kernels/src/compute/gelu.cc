#include "compute/kernels.h"
#include "compute/math.h"

namespace fuseline::FUSELINE_ISA {
namespace {

constexpr float kInverseRoot2 = 0.70710678118654752f;
constexpr float kInverseRoot2Pi = 0.39894228040143268f;
constexpr float kRoot2OverPi = 0.79788456080286536f;
constexpr float kCubic = 0.044715f;

struct Erf {
  static FL_INLINE Vec value(Vec x) { return 0.5f * x * (1.0f + erf(x * kInverseRoot2)); }
  // Φ(x) + x·φ(x). The error function in the form 1 − P(t)·e^(−x²/2), t = 1/(1 + p·|x|), shares the exponential with
  // the density (Abramowitz and Stegun 7.1.26, exact to 1.5e-7).
  static FL_INLINE Vec slope(Vec x) {
    const Vec z = max(x, -x) * kInverseRoot2;
    const Vec density = exp(-z * z);
    const Vec t = 1.0f / (1.0f + 0.3275911f * z);
    Vec p = set(1.061405429f);
    p = p * t + -1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t + -0.284496736f;
    p = p * t + 0.254829592f;
    const Vec tail = 0.5f * p * t * density;
    return (x > 0.0f ? 1.0f - tail : tail) + x * kInverseRoot2Pi * density;
  }
};

struct Tanh {
  static FL_INLINE Vec value(Vec x) { return 0.5f * x * (1.0f + tanh(kRoot2OverPi * (x + kCubic * x * x * x))); }
  static FL_INLINE Vec slope(Vec x) {
    const Vec t = tanh(kRoot2OverPi * (x + kCubic * x * x * x));
    const Vec inner = kRoot2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
  }
};

template <class Form>
FL_INLINE void forward(const GeluForward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      Vec value = load(x + i, lanes);
      if (a.bias != nullptr) value += load(a.bias + i, lanes);
      store(y + i, Form::value(value), lanes);
    });
  }
}

template <class Form>
FL_INLINE void backward(const GeluBackward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t start = row * a.width;
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      Vec value = load(a.x + start + i, lanes);
      if (a.bias != nullptr) value += load(a.bias + i, lanes);
      const Vec dx = load(a.dy + start + i, lanes) * Form::slope(value);
      if (a.dx != nullptr) store(a.dx + start + i, dx, lanes);
      if (a.dbias != nullptr) store(a.dbias + i, load(a.dbias + i, lanes) + dx, lanes);
    });
  }
}

}  // namespace

void gelu_erf_forward(const GeluForward& a, int64_t begin, int64_t end) { forward<Erf>(a, begin, end); }
void gelu_erf_backward(const GeluBackward& a, int64_t begin, int64_t end) { backward<Erf>(a, begin, end); }
void gelu_tanh_forward(const GeluForward& a, int64_t begin, int64_t end) { forward<Tanh>(a, begin, end); }
void gelu_tanh_backward(const GeluBackward& a, int64_t begin, int64_t end) { backward<Tanh>(a, begin, end); }

}  // namespace fuseline::FUSELINE_ISA
