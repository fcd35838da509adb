// Plain C entry points, for callers that hold memory of their own and no ONNX Runtime session.
#include <atomic>
#include <thread>

#include "optimizer.h"

namespace {

// Short-lived threads: an optimizer step takes milliseconds, starting a thread some ten microseconds.
fuseline::Parallel with_threads(int threads) {
  return [threads](size_t count, const fuseline::Task& task) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t index = next++; index < count; index = next++) task(index);
    };
    const size_t helpers = std::min<size_t>(threads > 1 ? threads - 1 : 0, count > 0 ? count - 1 : 0);
    std::vector<std::thread> pool;
    for (size_t index = 0; index < helpers; ++index) pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
  };
}

}  // namespace

// One AdamW step over `count` tensors, each with the hyperparameters of its group. Returns 0; 1 when skipped for a gradient that is not finite; -1 on failure.
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
    const auto result = fuseline::adamw_step(with_threads(threads), slots, clipping, false);
    if (norm != nullptr) *norm = result.norm;
    return result.applied ? 0 : 1;
  } catch (...) {
    return -1;
  }
}
