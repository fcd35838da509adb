// Cross-entropy of the scores of a linear layer and its gradients, a chunk of tokens at a time. Scores lie transposed,
// [class][token]: the rows of the weight are then the left operand of one product, and the scores that of the other
// two, so that nothing as large as the weight or the scores is ever packed or copied.
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/math.h"

namespace fuseline::FUSELINE_ISA {
namespace {

constexpr int64_t kClasses = 21 * kBlockRows;  // at a time: their scores and rows of the weight stay in a core's cache

int64_t whole_panels(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// Takes `count` rows of scores, with the bias added to them, into the statistics of the range.
void reduce_block(const LinearLoss& a, float* scores, const float* bias, int64_t count) {
  for (int64_t token = 0; token < a.tokens; token += W) {
    float* column = scores + token;
    const Vec before = load(a.tops + token);
    Vec top = before, total = load(a.totals + token);
    for (int64_t i = 0; i < count; ++i) {
      Vec value = load(column + i * a.tokens);
      if (bias != nullptr) {
        value += bias[i];
        store(column + i * a.tokens, value);
      }
      top = max(value, top);  // passes over what is no number; the exponentials do not
      total += value;
    }
    // Nothing but classes that are masked out has no top to subtract.
    const Vec none = set(-__builtin_inff()), shift = top == none ? Vec{} : top;
    Vec parts[2] = {};
    for (int64_t i = 0; i < count; ++i) parts[i & 1] += exp(load(column + i * a.tokens) - shift);
    const Vec kept = before == none ? load(a.sums + token) : load(a.sums + token) * exp(before - shift);
    store(a.sums + token, kept + (parts[0] + parts[1]));
    store(a.tops + token, top);
    store(a.totals + token, total);
  }
}

// Turns rows of scores into the gradient with respect to them.
void differentiate_block(const LinearLoss& a, float* scores, int64_t first, int64_t count) {
  const float flat = a.smoothing / static_cast<float>(a.classes);
  for (int64_t token = 0; token < a.tokens; token += W) {
    const Vec top = load(a.top + token), log_sum = load(a.log_sum + token), scale = load(a.scale + token);
    for (int64_t i = 0; i < count; ++i) {
      float* at = scores + i * a.tokens + token;
      store(at, (exp(load(at) - top - log_sum) - flat) * scale);
    }
  }
  for (int64_t token = 0; token < a.tokens; ++token) {
    const int64_t label = a.labels[token] - first;
    if (label >= 0 && label < count) scores[label * a.tokens + token] -= (1 - a.smoothing) * a.scale[token];
  }
}

void sum_rows(const LinearLoss& a, const float* scores, float* dbias, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Vec total = {};
    for (int64_t token = 0; token < a.tokens; token += W) total += load(scores + i * a.tokens + token);
    dbias[i] = (a.add ? dbias[i] : 0) + sum(total);
  }
}

}  // namespace

void linear_loss_pack(const LinearLoss& a, int64_t, int64_t) {
  pack_transposed(a.x, a.width, a.width, a.tokens, a.depth_panels);
  pack(a.x, a.width, a.tokens, a.width, a.width_panels);
}

int64_t linear_loss_scratch(const LinearLoss& a, int64_t, int64_t) { return kClasses * whole_panels(a.width); }

void linear_loss_scores(const LinearLoss& a, int64_t begin, int64_t end) {
  for (int64_t token = 0; token < a.tokens; ++token) {
    a.tops[token] = -__builtin_inff();
    a.sums[token] = a.totals[token] = 0;
  }
  for (int64_t first = begin; first < end; first += kClasses) {
    const int64_t count = min(kClasses, end - first);
    float* scores = a.scores + first * a.tokens;
    const Left rows{a.weight + first * a.width, a.width, 1};
    multiply({count, a.tokens, a.width, a.width}, rows, a.depth_panels, scores, a.tokens, false);
    reduce_block(a, scores, a.bias == nullptr ? nullptr : a.bias + first, count);
  }
}

void linear_loss_gradients(const LinearLoss& a, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kClasses) {
    const int64_t count = min(kClasses, end - first);
    float* scores = a.scores + first * a.tokens;
    differentiate_block(a, scores, first, count);
    if (a.dbias != nullptr) sum_rows(a, scores, a.dbias + first, count);
    if (a.dweight != nullptr)
      multiply({count, a.width, a.tokens, a.tokens}, {scores, a.tokens, 1}, a.width_panels,
               a.dweight + first * a.width, a.width, a.add);
    if (a.dx == nullptr) continue;
    pack(a.weight + first * a.width, a.width, count, a.width, a.scratch);
    multiply({a.tokens, a.width, count, count}, {scores, 1, a.tokens}, a.scratch, a.dx, a.width, first > begin);
  }
}

}  // namespace fuseline::FUSELINE_ISA
