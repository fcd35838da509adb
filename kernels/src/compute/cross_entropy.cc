#include "compute/kernels.h"
#include "compute/math.h"

namespace fuseline::FUSELINE_ISA {
namespace {

// The largest logit, and the logarithm of the sum of exponentials below it. They are kept apart: of logits that are
// large, their sum would lose the second.
struct RowSums {
  float top, log_sum;
};

// Blocks that stay in the first cache between the search for the maximum and the exponentials.
RowSums reduce_row(const float* x, int64_t width) {
  constexpr int64_t block = 2048;
  float highest = -__builtin_inff(), exponentials = 0;
  for (int64_t start = 0; start < width; start += block) {
    const float* part = x + start;
    const int64_t count = min(block, width - start);
    Vec tops[4];
    for (Vec& top : tops) top = set(highest);
    Sum values;
    sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec value = load(part + i, lanes);
      values.add(value, slot);
      tops[slot] = max(tops[slot], keep(value, highest, lanes));
    });
    const float top = largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
    const float sum = values.total();
    // Nothing but classes that are masked out: the search for the top passes over what is no number, the sum does not.
    if (top == -__builtin_inff() && sum == sum) continue;
    Sum total;
    sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      total.add(keep(exp(load(part + i, lanes) - top), 0, lanes), slot);
    });
    exponentials = total.total() + exponentials * __builtin_expf(highest - top);
    highest = top;
  }
  return {highest, __builtin_logf(exponentials)};
}

// How far the mean of a row lies below its top.
float mean_below(const float* x, int64_t width, float top) {
  Sum total;
  sweep(width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
    total.add(keep(top - load(x + i, lanes), 0, lanes), slot);
  });
  return total.total() / static_cast<float>(width);
}

// Writes scale·(e^(x − top − log_sum) − flat) along a row, past the caches where asked.
void write_row(const CrossEntropyBackward& a, const float* x, float* dx, RowSums sums, float flat) {
  const auto value = [&](int64_t i, auto lanes) FL_LAMBDA {
    return (exp(load(x + i, lanes) - sums.top - sums.log_sum) - flat) * a.scale;
  };
  if (!a.bypass_cache) {
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA { store(dx + i, value(i, lanes), lanes); });
    return;
  }
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(dx) / sizeof(float)) % W;
  int64_t i = min(misaligned == 0 ? 0 : W - misaligned, a.width);
  if (i > 0) store(dx, value(0, Part{i}), Part{i});
  for (; i + W <= a.width; i += W) stream(dx + i, value(i, Full{}));
  if (i < a.width) store(dx + i, value(i, Part{a.width - i}), Part{a.width - i});
  stream_fence();
}

}  // namespace

void cross_entropy_forward(const CrossEntropyForward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* statistics = a.statistics + 2 * row;
    statistics[0] = 0;
    statistics[1] = __builtin_inff();
    a.losses[row] = 0;
    if (a.labels[row] == a.ignored) continue;
    const float* x = a.logits + row * a.width;
    const RowSums sums = reduce_row(x, a.width);
    statistics[0] = sums.top;
    statistics[1] = sums.log_sum;
    // Classes masked by -inf have no mean, and without smoothing no need of one.
    const float spread = a.smoothing > 0 ? a.smoothing * mean_below(x, a.width, sums.top) : 0;
    a.losses[row] = sums.log_sum + (1 - a.smoothing) * (sums.top - x[a.labels[row]]) + spread;
  }
}

void cross_entropy_backward(const CrossEntropyBackward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.logits + row * a.width;
    float* dx = a.dlogits + row * a.width;
    const RowSums sums{a.statistics[2 * row], a.statistics[2 * row + 1]};
    if (sums.log_sum == __builtin_inff()) {
      memset(dx, 0, sizeof(float) * a.width);
      continue;
    }
    const float flat = a.smoothing / static_cast<float>(a.width);
    const int64_t label = a.labels[row];
    const float labelled = x[label];  // dx may be the memory of x
    write_row(a, x, dx, sums, flat);
    dx[label] = (__builtin_expf(labelled - sums.top - sums.log_sum) - flat - (1 - a.smoothing)) * a.scale;
  }
}

}  // namespace fuseline::FUSELINE_ISA
