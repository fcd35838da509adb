#include "compute/kernels.h"
#include "compute/math.h"

namespace fuseline::FUSELINE_ISA {

void layer_norm_forward(const LayerNormForward& a, int64_t begin, int64_t end) {
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    Sum total;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA { total.add(load(x + i, lanes), slot); });
    const float mean = total.total() * inverse_width;
    Sum squares;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec centred = keep(load(x + i, lanes) - mean, 0, lanes);
      squares.add(centred * centred, slot);
    });
    const float inv_std = 1.0f / __builtin_sqrtf(squares.total() * inverse_width + a.epsilon);
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      Vec value = (load(x + i, lanes) - mean) * inv_std * load(a.scale + i, lanes);
      if (a.bias != nullptr) value += load(a.bias + i, lanes);
      store(y + i, value, lanes);
    });
    a.mean[row] = mean;
    a.inv_std[row] = inv_std;
  }
}

// With g = dy·scale and h = (x − mean)·inv_std:  dx = inv_std·(g − mean(g) − h·mean(g·h)).
void layer_norm_backward(const LayerNormBackward& a, int64_t begin, int64_t end) {
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.width;
    const float* dy = a.dy + row * a.width;
    float* dx = a.dx == nullptr ? nullptr : a.dx + row * a.width;
    const float mean = a.mean[row], inv_std = a.inv_std[row];
    Sum sum_g, sum_gh;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec d = load(dy + i, lanes);
      const Vec h = (load(x + i, lanes) - mean) * inv_std;
      const Vec g = d * load(a.scale + i, lanes);
      sum_g.add(g, slot);
      sum_gh.add(g * h, slot);
      if (a.dscale != nullptr) store(a.dscale + i, load(a.dscale + i, lanes) + d * h, lanes);
      if (a.dbias != nullptr) store(a.dbias + i, load(a.dbias + i, lanes) + d, lanes);
    });
    if (a.dx == nullptr) continue;
    const float mean_g = sum_g.total() * inverse_width, mean_gh = sum_gh.total() * inverse_width;
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      const Vec h = (load(x + i, lanes) - mean) * inv_std;
      const Vec g = load(dy + i, lanes) * load(a.scale + i, lanes);
      store(dx + i, (g - mean_g - h * mean_gh) * inv_std, lanes);
    });
  }
}

void rms_norm_forward(const RmsNormForward& a, int64_t begin, int64_t end) {
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    Sum squares;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec value = load(x + i, lanes);
      squares.add(value * value, slot);
    });
    const float inv_rms = 1.0f / __builtin_sqrtf(squares.total() * inverse_width + a.epsilon);
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      store(y + i, load(x + i, lanes) * inv_rms * (a.offset + load(a.scale + i, lanes)), lanes);
    });
    a.inv_rms[row] = inv_rms;
  }
}

// With g = dy·scale and h = x·inv_rms:  dx = inv_rms·(g − h·mean(g·h)).
void rms_norm_backward(const RmsNormBackward& a, int64_t begin, int64_t end) {
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.width;
    const float* dy = a.dy + row * a.width;
    float* dx = a.dx == nullptr ? nullptr : a.dx + row * a.width;
    const float inv_rms = a.inv_rms[row];
    Sum sum_gh;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec dh = load(dy + i, lanes) * (load(x + i, lanes) * inv_rms);
      sum_gh.add(dh * (a.offset + load(a.scale + i, lanes)), slot);
      if (a.dscale != nullptr) store(a.dscale + i, load(a.dscale + i, lanes) + dh, lanes);
    });
    if (a.dx == nullptr) continue;
    const float mean_gh = sum_gh.total() * inverse_width;
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      const Vec g = load(dy + i, lanes) * (a.offset + load(a.scale + i, lanes));
      store(dx + i, (g - load(x + i, lanes) * inv_rms * mean_gh) * inv_rms, lanes);
    });
  }
}

}  // namespace fuseline::FUSELINE_ISA
