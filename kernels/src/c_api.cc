// Plain C entry points, for callers that hold memory of their own and no ONNX Runtime session.
#include "optimizer.h"
#include "threads.h"

// One AdamW step over `count` tensors, each with the hyperparameters of its group. Returns 0; 1 when skipped for a
// gradient that is not finite; -1 on failure.
extern "C" __attribute__((visibility("default"))) int fuseline_adamw(
    int64_t count, float* const* parameters, float* const* gradients, float* const* first, float* const* second,
    const int64_t* sizes, const int64_t* steps, const double* learning_rates, const double* weight_decays,
    const double* beta1, const double* beta2, const double* epsilon, double maximum_norm, int zero_gradients,
    int skip_nonfinite, int threads, double* norm) {
  try {
    std::vector<fuseline::Slot> slots;
    for (int64_t i = 0; i < count; ++i)
      slots.push_back({parameters[i], gradients[i], first[i], second[i], sizes[i], learning_rates[i],
                       weight_decays[i], steps[i], {beta1[i], beta2[i], epsilon[i]}});
    fuseline::Clipping clipping;
    clipping.maximum_norm = maximum_norm;
    clipping.zero_gradients = zero_gradients != 0;
    clipping.skip_nonfinite = skip_nonfinite != 0;
    const auto result = fuseline::adamw_step(fuseline::with_threads(threads), slots, clipping, false);
    if (norm != nullptr) *norm = result.norm;
    return result.applied ? 0 : 1;
  } catch (...) {
    return -1;
  }
}
