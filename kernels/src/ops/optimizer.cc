// FusedAdamW and FusedSgd: one node updates every parameter, in place. Where the parameters are spread over several
// nodes, the last one alone counts the step (`advance`), and `first` is the place of a node's first parameter in the
// rates (-1: the rates are its own).
#include "optimizer.h"

#include <algorithm>

#include "op.h"
#include "ops/all.h"

namespace fuseline {
namespace {

enum Place { kLearningRate, kWeightDecay, kHyper, kStep, kMaximumNorm, kGradientScale, kApply, kFirstTensor };
enum Switch { kZeroGradients, kSkipNonfinite, kAdvance, kFirst, kNesterov };

double double_at(const Tensor& tensor, size_t index) {
  const auto* values = static_cast<const double*>(tensor.data);
  return tensor.size() == 1 ? values[0] : values[index];
}

// Nodes that share the rates with others take part of them.
void require_per_tensor(const Context& context, size_t place, size_t count, const char* name) {
  const int64_t size = context.input(place).size(), first = static_cast<int64_t>(context.attribute(kFirst));
  const int64_t needed = std::max<int64_t>(first, 0) + static_cast<int64_t>(count);
  require(size == 1 || (first < 0 ? size == needed : size >= needed),
          std::string(name) + " holds " + std::to_string(size) + " values; expected 1, or " +
              std::to_string(needed) + ", one per parameter");
}

// The variadic inputs are `kinds` lists of equal length, one after the other: parameters, gradients, moments.
std::vector<Slot> read_slots(const Context& context, size_t kinds, int64_t step) {
  const size_t tensors = context.input_count() - kFirstTensor, count = tensors / kinds;
  require(tensors % kinds == 0, std::to_string(tensors) + " tensors do not split into " + std::to_string(kinds) +
                                    " lists of equal length (parameters, gradients, moments)");
  const Tensor rate = context.input(kLearningRate), decay = context.input(kWeightDecay);
  require_per_tensor(context, kLearningRate, count, "learning_rate");
  require_per_tensor(context, kWeightDecay, count, "weight_decay");
  const auto first = static_cast<size_t>(std::max(context.attribute(kFirst), 0.0));
  std::vector<Slot> slots;
  for (size_t i = 0; i < count; ++i) {
    float* lists[4] = {};
    const Shape shape = context.input(kFirstTensor + i).shape;
    for (size_t kind = 0; kind < kinds; ++kind) {
      const Tensor tensor = context.input(kFirstTensor + kind * count + i);
      require(tensor.size() == elements(shape), "tensor " + std::to_string(i) + " of list " +
                                                    std::to_string(kind) + " has shape " + text(tensor.shape) +
                                                    ", its parameter " + text(shape));
      lists[kind] = tensor.floats();
    }
    slots.push_back({lists[0], lists[1], lists[2], lists[3], elements(shape), double_at(rate, first + i),
                     double_at(decay, first + i), step, {}});
  }
  return slots;
}

// What both optimizers share: the `apply` switch, the step counter, clipping, and the two outputs.
template <class Update>
void step(const Context& context, size_t kinds, const Update& update) {
  auto* counter = static_cast<int64_t*>(context.input(kStep).data);
  auto* applied = static_cast<bool*>(context.output_data(0, {1}));
  float* norm = context.output(1, {1});
  StepResult result;
  result.applied = *static_cast<const bool*>(context.input(kApply).data);
  if (result.applied) {
    Clipping clipping;
    clipping.maximum_norm = *context.input(kMaximumNorm).floats();
    clipping.gradient_scale = *context.input(kGradientScale).floats();
    clipping.zero_gradients = context.attribute(kZeroGradients) != 0;
    clipping.skip_nonfinite = context.attribute(kSkipNonfinite) != 0;
    result = update(read_slots(context, kinds, *counter + 1), clipping, norm != nullptr);
  }
  if (result.applied && context.attribute(kAdvance) != 0) ++*counter;
  if (norm != nullptr) *norm = static_cast<float>(result.norm);
  if (applied != nullptr) *applied = result.applied;
}

void adamw(const Context& context) {
  const Tensor hyper = context.input(kHyper);
  const AdamW adam{double_at(hyper, 0), double_at(hyper, 1), double_at(hyper, 2)};
  step(context, 4, [&](std::vector<Slot> slots, const Clipping& clipping, bool want_norm) {
    for (Slot& slot : slots) slot.adam = adam;
    return adamw_step(context.parallel(), slots, clipping, want_norm);
  });
}

void sgd(const Context& context) {
  const Tensor hyper = context.input(kHyper);
  const Sgd sgd{double_at(hyper, 0), double_at(hyper, 1), context.attribute(kNesterov) != 0};
  const size_t kinds = sgd.momentum == 0 ? 2 : 3;
  step(context, kinds, [&](const std::vector<Slot>& slots, const Clipping& clipping, bool want_norm) {
    return sgd_step(context.parallel(), slots, sgd, clipping, want_norm);
  });
}

std::vector<Port> inputs(const char* hyper) {
  return {
      {"learning_rate", "", abi::kDouble},
      {"weight_decay", "", abi::kDouble},
      {"hyper", hyper, abi::kDouble},
      {"step", "1", abi::kInt64},
      {"max_norm", "1"},
      {"gradient_scale", "1"},
      {"apply", "1", abi::kBool},
      {"tensors", "", abi::kFloat, abi::kVariadic},
  };
}

}  // namespace

Definitions optimizer_definitions() {
  const std::vector<Port> outputs = {{"applied", "1", abi::kBool}, optional("gradient_norm", "1")};
  const std::vector<Attribute> switches = {
      {"zero_gradients", true, 0}, {"skip_nonfinite", true, 0}, {"advance", true, 1}, {"first", true, -1}};
  std::vector<Attribute> with_nesterov = switches;
  with_nesterov.push_back({"nesterov", true, 0});
  return {
      {"FusedAdamW", inputs("3"), outputs, switches, adamw},
      {"FusedSgd",
       inputs("2"),
       outputs,
       with_nesterov,
       sgd},
  };
}

}  // namespace fuseline
