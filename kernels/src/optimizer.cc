#include "optimizer.h"

#include <cmath>
#include <cstring>

#include "compute/kernels.h"

namespace fuseline {
namespace {

constexpr int64_t kBlock = 1 << 16;  // elements: four streams of it stay in a core's cache

struct Block {
  size_t slot;
  int64_t begin, end;
};

std::vector<Block> blocks_of(const std::vector<Slot>& slots) {
  std::vector<Block> blocks;
  for (size_t slot = 0; slot < slots.size(); ++slot)
    for (int64_t begin = 0; begin < slots[slot].size; begin += kBlock)
      blocks.push_back({slot, begin, std::min(begin + kBlock, slots[slot].size)});
  return blocks;
}

// Blocks are summed in their order, so the norm does not depend on which thread took which.
double gradient_norm(const Parallel& parallel, const std::vector<Slot>& slots, const std::vector<Block>& blocks) {
  std::vector<double> squares(blocks.size(), 0.0);
  parallel(blocks.size(), [&](size_t index) {
    const Block& block = blocks[index];
    routines().square_sum({slots[block.slot].gradient, &squares[index]}, block.begin, block.end);
  });
  double total = 0;
  for (double square : squares) total += square;
  return std::sqrt(total);
}

void zero_gradients(const Parallel& parallel, const std::vector<Slot>& slots, const std::vector<Block>& blocks) {
  parallel(blocks.size(), [&](size_t index) {
    const Block& block = blocks[index];
    std::memset(slots[block.slot].gradient + block.begin, 0, sizeof(float) * (block.end - block.begin));
  });
}

// update(slot, scale, begin, end) over everything, after the decisions that need the norm of it all.
template <class Update>
StepResult run(const Parallel& parallel, const std::vector<Slot>& slots, const Clipping& clipping, bool want_norm,
               const Update& update) {
  const std::vector<Block> blocks = blocks_of(slots);
  StepResult result;
  double scale = clipping.gradient_scale;
  if (clipping.maximum_norm > 0 || clipping.skip_nonfinite || want_norm)
    result.norm = gradient_norm(parallel, slots, blocks) * std::abs(clipping.gradient_scale);
  if (clipping.skip_nonfinite && !std::isfinite(result.norm)) {
    result.applied = false;
    if (clipping.zero_gradients) zero_gradients(parallel, slots, blocks);
    return result;
  }
  if (clipping.maximum_norm > 0) {
    const double ratio = clipping.maximum_norm / (result.norm + 1e-6);
    if (!(ratio >= 1.0)) scale *= ratio;  // as in torch, a norm that is not a number leaves no gradient that is
  }
  parallel(blocks.size(), [&](size_t index) {
    const Block& block = blocks[index];
    update(slots[block.slot], static_cast<float>(scale), block.begin, block.end);
  });
  return result;
}

}  // namespace

AdamWUpdate adamw_arguments(const Slot& slot, float gradient_scale, bool zero_gradient) {
  const double step = static_cast<double>(slot.step);
  const AdamW& adam = slot.adam;
  AdamWUpdate update{};
  update.parameter = slot.parameter;
  update.gradient = slot.gradient;
  update.first = slot.first;
  update.second = slot.second;
  update.gradient_scale = gradient_scale;
  update.decay = static_cast<float>(1.0 - slot.learning_rate * slot.weight_decay);
  update.beta1 = static_cast<float>(adam.beta1);
  update.beta2 = static_cast<float>(adam.beta2);
  update.one_minus_beta1 = static_cast<float>(1.0 - adam.beta1);
  update.one_minus_beta2 = static_cast<float>(1.0 - adam.beta2);
  update.step_size = static_cast<float>(slot.learning_rate / (1.0 - std::pow(adam.beta1, step)));
  update.inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(adam.beta2, step)));
  update.epsilon = static_cast<float>(adam.epsilon);
  update.zero_gradient = zero_gradient;
  return update;
}

StepResult adamw_step(const Parallel& parallel, const std::vector<Slot>& slots, const Clipping& clipping,
                      bool want_norm) {
  return run(parallel, slots, clipping, want_norm, [&](const Slot& slot, float scale, int64_t begin, int64_t end) {
    routines().adamw_update(adamw_arguments(slot, scale, clipping.zero_gradients), begin, end);
  });
}

StepResult sgd_step(const Parallel& parallel, const std::vector<Slot>& slots, const Sgd& sgd,
                    const Clipping& clipping, bool want_norm) {
  return run(parallel, slots, clipping, want_norm, [&](const Slot& slot, float scale, int64_t begin, int64_t end) {
    SgdUpdate update{};
    update.parameter = slot.parameter;
    update.gradient = slot.gradient;
    update.momentum_buffer = sgd.momentum == 0 ? nullptr : slot.first;
    update.gradient_scale = scale;
    update.learning_rate = static_cast<float>(slot.learning_rate);
    update.momentum = static_cast<float>(sgd.momentum);
    update.dampening = static_cast<float>(sgd.dampening);
    update.weight_decay = static_cast<float>(slot.weight_decay);
    update.nesterov = sgd.nesterov;
    update.first_step = slot.step == 1;
    update.zero_gradient = clipping.zero_gradients;
    routines().sgd_update(update, begin, end);
  });
}

}  // namespace fuseline
