// Optimizer steps over many tensors at once, for the operators and for the plain C entry points alike.
#pragma once
#include <vector>

#include "compute/kernels.h"
#include "parallel.h"

namespace fuseline {

struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

// One tensor of an update, with the hyperparameters of its group.
struct Slot {
  float *parameter, *gradient, *first, *second;  // second moment: AdamW only; first may be null for SGD
  int64_t size;
  double learning_rate, weight_decay;
  int64_t step;  // of this update, from 1
  AdamW adam = {};
};

struct Clipping {
  double maximum_norm = 0;  // 0: no clipping
  double gradient_scale = 1;
  bool skip_nonfinite = false;
  bool zero_gradients = false;
};

struct Sgd {
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

struct StepResult {
  double norm = 0;  // of the scaled gradients before clipping; 0 when nothing asked for it
  bool applied = true;
};

// What an AdamW update of a slot works with, at its first element.
AdamWUpdate adamw_arguments(const Slot&, float gradient_scale, bool zero_gradient);

StepResult adamw_step(const Parallel&, const std::vector<Slot>&, const Clipping&, bool want_norm);
StepResult sgd_step(const Parallel&, const std::vector<Slot>&, const Sgd&, const Clipping&, bool want_norm);

}  // namespace fuseline
