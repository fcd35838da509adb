// The gradient of a table as the rows that a batch has touched: added to another gradient of the table, or given to the
// optimizer, without a gradient as large as the table.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/kernels.h"
#include "op.h"
#include "optimizer.h"
#include "ops/all.h"
#include "scratch.h"

namespace fuseline {
namespace {

// The rows of the table that tokens touch, in order, and the sum of each one's gradients.
struct Touched {
  std::vector<int64_t> rows;
  const float* sums;
};

Touched sum_rows(const Context& context, const Tensor& dy, const Tensor& ids, int64_t vocabulary, int64_t width,
                 int64_t padding) {
  std::vector<int64_t> slots(static_cast<size_t>(ids.size()));
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t id = ids.ints()[i];
    if (id < -vocabulary || id >= vocabulary)
      require(false, "index " + std::to_string(id) + " at position " + std::to_string(i) + " is outside a table of " +
                         std::to_string(vocabulary) + " rows");
    slots[i] = id < 0 ? id + vocabulary : id;
  }
  Touched found{slots, nullptr};
  std::sort(found.rows.begin(), found.rows.end());
  found.rows.erase(std::unique(found.rows.begin(), found.rows.end()), found.rows.end());
  found.rows.erase(std::remove(found.rows.begin(), found.rows.end(), padding), found.rows.end());
  const auto count = static_cast<int64_t>(found.rows.size());
  for (int64_t& slot : slots)  // what is padding goes to a row that is passed over
    slot = slot == padding ? count : std::lower_bound(found.rows.begin(), found.rows.end(), slot) - found.rows.begin();
  // One row more, of zeros, stands for all rows that are not touched.
  float* sums = run_scratch((count + 1) * width);
  std::memset(sums + count * width, 0, sizeof(float) * width);
  found.sums = sums;
  const EmbeddingBackward arguments{dy.floats(), slots.data(), sums, ids.size(), width, 0, width, count + 1, count};
  for_range(context.parallel(), count, width,
            [&](int64_t begin, int64_t end) { routines().embedding_backward(arguments, begin, end); });
  return found;
}

void add_rows(const Context& context) {
  const Tensor total = context.input(0), dy = context.input(1), ids = context.input(2);
  const int64_t vocabulary = total.shape[0], width = total.shape[1];
  float* result = context.output(0, total.shape);
  if (result == nullptr) return;
  if (result != total.floats()) std::memcpy(result, total.data, sizeof(float) * total.size());
  const Touched touched = sum_rows(context, dy, ids, vocabulary, width, *context.input(3).ints());
  for (size_t i = 0; i < touched.rows.size(); ++i) {
    float* to = result + touched.rows[i] * width;
    const float* from = touched.sums + static_cast<int64_t>(i) * width;
    for (int64_t column = 0; column < width; ++column) to[column] += from[column];
  }
}

enum Place {
  kLearningRate, kWeightDecay, kHyper, kStep, kMaximumNorm, kGradientScale, kApply,
  kWeight, kDy, kIds, kPadding, kFirstMoment, kSecondMoment
};
enum Switch { kAdvance, kFirst };

double double_at(const Tensor& tensor, int64_t index) {
  require(tensor.size() == 1 || index < tensor.size(), "there is no rate " + std::to_string(index) + " among " +
                                                           std::to_string(tensor.size()));
  return static_cast<const double*>(tensor.data)[tensor.size() == 1 ? 0 : index];
}

double norm_of(const Touched& touched, int64_t width) {
  double squares = 0;
  routines().square_sum({touched.sums, &squares}, 0, static_cast<int64_t>(touched.rows.size()) * width);
  return std::sqrt(squares);
}

void update_rows(const Context& context, const Slot& table, const Touched& touched, float scale) {
  const int64_t width = context.input(kWeight).shape[1], vocabulary = context.input(kWeight).shape[0];
  for_range(context.parallel(), vocabulary, 4 * width, [&](int64_t begin, int64_t end) {
    AdamWUpdate update = adamw_arguments(table, scale, false);
    size_t next = std::lower_bound(touched.rows.begin(), touched.rows.end(), begin) - touched.rows.begin();
    for (int64_t row = begin; row < end; ++row) {
      const bool here = next < touched.rows.size() && touched.rows[next] == row;
      const size_t slot = here ? next++ : touched.rows.size();
      update.parameter = table.parameter + row * width;
      update.first = table.first + row * width;
      update.second = table.second + row * width;
      update.gradient = const_cast<float*>(touched.sums) + static_cast<int64_t>(slot) * width;
      routines().adamw_update(update, 0, width);
    }
  });
}

void adamw_rows(const Context& context) {
  auto* counter = static_cast<int64_t*>(context.input(kStep).data);
  const bool apply = *static_cast<const bool*>(context.input(kApply).data);
  double norm = 0;
  if (apply) {
    const Tensor weight = context.input(kWeight), hyper = context.input(kHyper);
    const int64_t place = std::max<int64_t>(static_cast<int64_t>(context.attribute(kFirst)), 0);
    double scale = *context.input(kGradientScale).floats();
    const double maximum = *context.input(kMaximumNorm).floats();
    const Touched touched = sum_rows(context, context.input(kDy), context.input(kIds), weight.shape[0], weight.shape[1],
                                     *context.input(kPadding).ints());
    norm = norm_of(touched, weight.shape[1]) * std::abs(scale);
    if (maximum > 0 && !(maximum / (norm + 1e-6) >= 1.0)) scale *= maximum / (norm + 1e-6);  // as FusedAdamW does
    const AdamW adam{double_at(hyper, 0), double_at(hyper, 1), double_at(hyper, 2)};
    const Slot table{weight.floats(), nullptr, context.input(kFirstMoment).floats(),
                     context.input(kSecondMoment).floats(), weight.size(),
                     double_at(context.input(kLearningRate), place), double_at(context.input(kWeightDecay), place),
                     *counter + 1, adam};
    update_rows(context, table, touched, static_cast<float>(scale));
    if (context.attribute(kAdvance) != 0) ++*counter;
  }
  if (float* result = context.output(1, {1})) *result = static_cast<float>(norm);
  if (void* applied = context.output_data(0, {1})) *static_cast<bool*>(applied) = apply;
}

}  // namespace

Definitions embedding_rows_definitions() {
  const Port dy{"dy", "*R,D"}, ids{"ids", "*R", abi::kInt64}, state{"state", "1", abi::kInt64};
  return {
      {"FusedEmbeddingGradAdd",
       {{"total", "V,D"}, dy, ids, state},
       {{"dweight", "V,D"}},
       {},
       add_rows,
       in_place<0>()},
      {"FusedAdamWRows",
       {{"learning_rate", "", abi::kDouble},
        {"weight_decay", "", abi::kDouble},
        {"hyper", "3", abi::kDouble},
        {"step", "1", abi::kInt64},
        {"max_norm", "1"},
        {"gradient_scale", "1"},
        {"apply", "1", abi::kBool},
        {"weight", "V,D"},
        dy,
        ids,
        state,
        {"exp_avg", "V,D"},
        {"exp_avg_sq", "V,D"}},
       {{"applied", "1", abi::kBool}, optional("gradient_norm", "1")},
       {{"advance", true, 1}, {"first", true, -1}},
       adamw_rows},
  };
}

}  // namespace fuseline
