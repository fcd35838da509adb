// A linear layer, the cross-entropy of its scores and the gradients of both in one operator: the scores of a chunk of
// tokens are gone before the next chunk's are made.
#include <cmath>
#include <cstring>

#include "compute/kernels.h"
#include "ops/all.h"
#include "scratch.h"

namespace fuseline {
namespace {

enum Input { kDloss, kX, kWeight, kBias, kLabels };
enum Option { kIgnoreIndex, kReduction, kLabelSmoothing };
enum Reduction { kMean, kSum };

// Tokens of a chunk, at most: each chunk reads the weight and writes its gradient. Half of them, within bounds.
constexpr int64_t kFewTokens = 128, kTokens = 256, kChunks = 2;
constexpr int64_t kRanges = 16, kSmallestRange = 512;  // of classes, by which the work is shared

int64_t whole(int64_t count, int64_t part) { return (count + part - 1) / part * part; }

// The rows that have a label.
std::vector<int64_t> labelled_rows(const Tensor& labels, int64_t classes, int64_t ignored) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < labels.size(); ++row) {
    const int64_t label = labels.ints()[row];
    if (label == ignored) continue;
    if (label < 0 || label >= classes)
      require(false, "label " + std::to_string(label) + " of row " + std::to_string(row) + " is neither one of " +
                         std::to_string(classes) + " classes nor ignore_index " + std::to_string(ignored));
    rows.push_back(row);
  }
  return rows;
}

// What a run works with; `memory` is divided among the pieces, or only counted.
struct Work {
  LinearLoss shared{};
  const Parallel* parallel = nullptr;
  float *rows = nullptr, *ranges = nullptr, *partials = nullptr, *statistics = nullptr;
  int64_t count = 0;  // of ranges
  std::vector<int64_t> labels;

  int64_t lay_out(float* memory) {
    int64_t size = 0;
    const auto take = [&](int64_t floats) {
      float* piece = memory == nullptr ? nullptr : memory + size;
      size += whole(floats, 16);
      return piece;
    };
    const int64_t tokens = shared.tokens, padded = whole(shared.width, kLossPadding);
    shared.scores = take(shared.classes * tokens);
    rows = take(tokens * shared.width);
    shared.depth_panels = take(tokens * shared.width);
    shared.width_panels = take(tokens * padded);
    ranges = take(count * 3 * tokens);
    statistics = take(3 * tokens);
    partials = take(count * tokens * shared.width);
    return size;
  }

  void each_range(void (*routine)(const LinearLoss&, int64_t, int64_t)) const {
    for_chunks(*parallel, shared.classes, count, [&](int64_t index, int64_t begin, int64_t end) {
      LinearLoss arguments = shared;
      arguments.tops = ranges + index * 3 * shared.tokens;
      arguments.sums = arguments.tops + shared.tokens;
      arguments.totals = arguments.sums + shared.tokens;
      arguments.scratch = task_scratch(routines().linear_loss_scratch(arguments, begin, end));
      if (shared.dx != nullptr) arguments.dx = partials + index * shared.tokens * shared.width;
      routine(arguments, begin, end);
    });
  }

  // The top, the logarithm of the sum of exponentials below it and the sum of all scores of a token.
  void combine(int64_t token, float& top, double& log_sum, double& total) const {
    const auto at = [&](int64_t range, int64_t kind) { return ranges[(range * 3 + kind) * shared.tokens + token]; };
    top = -INFINITY;
    for (int64_t range = 0; range < count; ++range) top = std::max(top, at(range, 0));
    double sum = 0;
    total = 0;
    for (int64_t range = 0; range < count; ++range) {
      const double weight = at(range, 0) == -INFINITY ? 1 : std::exp(static_cast<double>(at(range, 0)) - top);
      sum += at(range, 1) * weight;
      total += at(range, 2);
    }
    log_sum = std::log(sum);
  }

  // The sum of the losses of a chunk of rows; their gradients go where the arguments say.
  double run(const float* x, float* dx, const int64_t* chosen, const int64_t* all_labels, int64_t tokens, float scale) {
    std::memset(rows, 0, sizeof(float) * shared.tokens * shared.width);
    labels.assign(static_cast<size_t>(shared.tokens), -1);
    for (int64_t token = 0; token < tokens; ++token) {
      std::memcpy(rows + token * shared.width, x + chosen[token] * shared.width, sizeof(float) * shared.width);
      labels[token] = all_labels[chosen[token]];
    }
    shared.x = rows;
    shared.labels = labels.data();
    routines().linear_loss_pack(shared, 0, tokens);
    each_range(routines().linear_loss_scores);
    float *top = statistics, *log_sums = top + shared.tokens, *scales = log_sums + shared.tokens;
    double losses = 0;
    for (int64_t token = 0; token < shared.tokens; ++token) {
      top[token] = scales[token] = 0;
      log_sums[token] = INFINITY;
      if (token >= tokens) continue;
      double log_sum, total;
      combine(token, top[token], log_sum, total);
      log_sums[token] = static_cast<float>(log_sum);
      scales[token] = scale;
      const double labelled = shared.scores[labels[token] * shared.tokens + token], smoothing = shared.smoothing;
      // Classes masked by -inf have no mean, and without smoothing no need of one.
      const double spread = smoothing > 0 ? smoothing * (top[token] - total / static_cast<double>(shared.classes)) : 0;
      losses += static_cast<float>(log_sum + (1 - smoothing) * (top[token] - labelled) + spread);
    }
    shared.top = top;
    shared.log_sum = log_sums;
    shared.scale = scales;
    each_range(routines().linear_loss_gradients);
    if (dx != nullptr) add_partials(dx, chosen, tokens);
    return losses;
  }

  void add_partials(float* dx, const int64_t* chosen, int64_t tokens) const {
    for_range(*parallel, tokens, count * shared.width, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        const int64_t place = token * shared.width;
        routines().column_sum({partials + place, dx + chosen[token] * shared.width, count, shared.tokens * shared.width},
                              0, shared.width);
      }
    });
  }
};

void zero(float* to, int64_t count) {
  if (to != nullptr) std::memset(to, 0, sizeof(float) * count);
}

void linear_cross_entropy(const Context& context) {
  const Tensor x = context.input(kX), weight = context.input(kWeight), bias = context.input(kBias),
               labels = context.input(kLabels);
  const int64_t classes = weight.shape[0], width = weight.shape[1];
  const std::vector<int64_t> counted =
      labelled_rows(labels, classes, static_cast<int64_t>(context.attribute(kIgnoreIndex)));
  const auto rows = static_cast<int64_t>(counted.size());
  // As in torch, the mean over no labels at all is 0/0.
  const double share = context.attribute(kReduction) == kSum ? 1.0 : 1.0 / static_cast<double>(rows);

  // dx may be the memory of x: what is ignored gets its zeros, what is labelled is read before it is written.
  float* dx = context.output(0, x.shape);
  Work work;
  work.parallel = &context.parallel();
  LinearLoss& shared = work.shared;
  shared.weight = weight.floats();
  shared.bias = bias.floats();
  shared.dx = dx;
  shared.dweight = context.output(1, weight.shape);
  shared.dbias = context.output(2, bias.shape);
  const int64_t most = std::min(kTokens, std::max(kFewTokens, rows / kChunks));
  const int64_t chunks = std::max<int64_t>((rows + most - 1) / most, 1);
  shared.tokens = whole((rows + chunks - 1) / chunks, kLossPadding);
  shared.width = width;
  shared.classes = classes;
  shared.smoothing = static_cast<float>(context.attribute(kLabelSmoothing));
  work.count = std::max<int64_t>(std::min(kRanges, classes / kSmallestRange), 1);
  work.lay_out(run_scratch(work.lay_out(nullptr)));

  const float scale = *context.input(kDloss).floats() * static_cast<float>(share);
  double losses = 0;
  for (int64_t first = 0; first < rows; first += shared.tokens) {
    shared.add = first > 0;
    const int64_t tokens = std::min(shared.tokens, rows - first);
    losses += work.run(x.floats(), dx, counted.data() + first, labels.ints(), tokens, scale);
  }
  if (rows == 0) {
    zero(shared.dweight, classes * width);
    zero(shared.dbias, shared.bias == nullptr ? 0 : classes);
  }
  size_t next = 0;
  for (int64_t row = 0; dx != nullptr && row < labels.size(); ++row) {
    if (next < counted.size() && counted[next] == row)
      ++next;
    else
      zero(dx + row * width, width);
  }
  if (float* loss = context.output(3, {})) *loss = static_cast<float>(losses * share);
}

}  // namespace

Definitions linear_loss_definitions() {
  return {{"FusedLinearCrossEntropy",
           {{"dloss", "1"}, {"x", "*R,K"}, {"weight", "V,K"}, {"bias", "V?"}, {"labels", "*R", abi::kInt64}},
           {optional("dx", "*R,K"), optional("dweight", "V,K"), optional("dbias", "V?"), optional("loss", "()")},
           {{"ignore_index", true, -100}, {"reduction", true, 0}, {"label_smoothing", false, 0}},
           linear_cross_entropy,
           in_place<1>()}};
}

}  // namespace fuseline
