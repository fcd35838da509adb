// Cross-entropy of logits and class indices. No tensor of probabilities: the backward pass makes them again.
#include <limits>

#include "compute/kernels.h"
#include "ops/all.h"
#include "scratch.h"

namespace fuseline {
namespace {

enum Option { kIgnoreIndex, kReduction, kLabelSmoothing };
enum Reduction { kMean, kSum };

constexpr int64_t kCost = 4;
constexpr int64_t kCacheFloats = 4 << 20;  // a gradient beyond this is out of the caches before it is used

// How many rows have a label; `counts(row)` says whether the row should. `otherwise` is what else it could be.
template <class Counts>
int64_t count_labels(const Tensor& logits, const Tensor& labels, const Counts& counts, const std::string& otherwise) {
  int64_t counted = 0;
  for (int64_t row = 0; row < labels.size(); ++row) {
    if (!counts(row)) continue;
    const int64_t label = labels.ints()[row];
    if (label < 0 || label >= logits.last())
      require(false, "label " + std::to_string(label) + " of row " + std::to_string(row) + " is neither one of " +
                         std::to_string(logits.last()) + " classes nor " + otherwise);
    ++counted;
  }
  return counted;
}

void cross_entropy(const Context& context) {
  const Tensor logits = context.input(0), labels = context.input(1);
  const int64_t rows = labels.size(), ignored = static_cast<int64_t>(context.attribute(kIgnoreIndex));
  const auto smoothing = static_cast<float>(context.attribute(kLabelSmoothing));
  const int64_t counted = count_labels(
      logits, labels, [&](int64_t row) { return labels.ints()[row] != ignored; },
      "ignore_index " + std::to_string(ignored));
  float* losses = run_scratch(3 * rows);
  Shape each = labels.shape;
  each.push_back(2);
  float* statistics = context.output(1, each);
  if (statistics == nullptr) statistics = losses + rows;
  const CrossEntropyForward arguments{logits.floats(), labels.ints(), statistics, losses, logits.last(), ignored,
                                      smoothing};
  for_range(context.parallel(), rows, logits.last() * kCost,
            [&](int64_t begin, int64_t end) { routines().cross_entropy_forward(arguments, begin, end); });
  double total = 0;
  for (int64_t row = 0; row < rows; ++row) total += losses[row];
  // As in torch, the mean over no labels at all is 0/0.
  const double weight = context.attribute(kReduction) == kSum ? 1.0 : 1.0 / static_cast<double>(counted);
  if (float* loss = context.output(0, {})) *loss = static_cast<float>(total * weight);
  if (float* state = context.output(2, {2})) {
    state[0] = static_cast<float>(weight);
    state[1] = smoothing;
  }
}

void cross_entropy_gradient(const Context& context) {
  const Tensor dloss = context.input(0), logits = context.input(1), labels = context.input(2);
  const float* statistics = context.input(3).floats();
  const float* state = context.input(4).floats();
  count_labels(
      logits, labels, [&](int64_t row) { return statistics[2 * row + 1] != std::numeric_limits<float>::infinity(); },
      "of a row that was ignored");
  float* dlogits = context.output(0, logits.shape);
  const CrossEntropyBackward arguments{logits.floats(),
                                       statistics,
                                       labels.ints(),
                                       dlogits,
                                       logits.last(),
                                       *dloss.floats() * state[0],
                                       state[1],
                                       logits.size() > kCacheFloats && dlogits != logits.floats()};
  for_range(context.parallel(), logits.rows(), logits.last() * kCost,
            [&](int64_t begin, int64_t end) { routines().cross_entropy_backward(arguments, begin, end); });
}

}  // namespace

Definitions cross_entropy_definitions() {
  const Port logits{"logits", "*R,V"}, labels{"labels", "*R", abi::kInt64};
  return {
      {"FusedCrossEntropy",
       {logits, labels},
       {{"loss", "()"}, optional("statistics", "*R,2"), optional("state", "2")},
       {{"ignore_index", true, -100}, {"reduction", true, 0}, {"label_smoothing", false, 0}},
       cross_entropy},
      {"FusedCrossEntropyGrad",
       {{"dloss", "1"}, logits, labels, {"statistics", "*R,2"}, {"state", "2"}},
       {{"dlogits", "*R,V"}},
       {},
       cross_entropy_gradient,
       in_place<1>()},
  };
}

}  // namespace fuseline
