#include "compute/kernels.h"
#include "compute/math.h"

namespace fuseline::FUSELINE_ISA {
namespace {

struct RowSums {
  float log_sum_exp, sum;
};

// Blocks that stay in the first cache between the search for the maximum and the exponentials.
RowSums reduce_row(const float* x, int64_t width) {
  constexpr int64_t block = 2048;
  float highest = -__builtin_inff(), exponentials = 0, plain = 0;
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
    plain += sum;
    // Nothing but classes that are masked out: the search for the top passes over what is no number, the sum does not.
    if (top == -__builtin_inff() && sum == sum) continue;
    Sum total;
    sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      total.add(keep(exp(load(part + i, lanes) - top), 0, lanes), slot);
    });
    exponentials = total.total() + exponentials * __builtin_expf(highest - top);
    highest = top;
  }
  return {highest + __builtin_logf(exponentials), plain};
}

// Writes scale·(e^(x − lse) − flat) along a row, past the caches where asked.
void write_row(const CrossEntropyBackward& a, const float* x, float* dx, float log_sum_exp, float flat) {
  const auto value = [&](int64_t i, auto lanes) FL_LAMBDA {
    return (exp(load(x + i, lanes) - log_sum_exp) - flat) * a.scale;
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
    a.log_sum_exp[row] = __builtin_inff();
    a.losses[row] = 0;
    if (a.labels[row] == a.ignored) continue;
    const float* x = a.logits + row * a.width;
    const RowSums sums = reduce_row(x, a.width);
    // Classes masked by -inf have no mean, and without smoothing no need of one.
    const float mean = a.smoothing > 0 ? sums.sum / static_cast<float>(a.width) : 0;
    a.log_sum_exp[row] = sums.log_sum_exp;
    a.losses[row] = sums.log_sum_exp - (1 - a.smoothing) * x[a.labels[row]] - a.smoothing * mean;
  }
}

void cross_entropy_backward(const CrossEntropyBackward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.logits + row * a.width;
    float* dx = a.dlogits + row * a.width;
    const float log_sum_exp = a.log_sum_exp[row];
    if (log_sum_exp == __builtin_inff()) {
      memset(dx, 0, sizeof(float) * a.width);
      continue;
    }
    const float flat = a.smoothing / static_cast<float>(a.width);
    const int64_t label = a.labels[row];
    const float labelled = x[label];  // dx may be the memory of x
    write_row(a, x, dx, log_sum_exp, flat);
    dx[label] = (__builtin_expf(labelled - log_sum_exp) - flat - (1 - a.smoothing)) * a.scale;
  }
}

}  // namespace fuseline::FUSELINE_ISA
