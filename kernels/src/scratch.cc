#include "scratch.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace fuseline {
namespace {

std::atomic<int64_t> g_held{0};

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(); }

  float* floats(int64_t count) {
    if (count > capacity_) grow(count);
    return data_;
  }

 private:
  void release() {
    std::free(data_);
    data_ = nullptr;
    g_held -= capacity_ * static_cast<int64_t>(sizeof(float));
    capacity_ = 0;
  }

  void grow(int64_t count) {
    constexpr int64_t line = 64 / sizeof(float);
    release();
    count = (count + line - 1) / line * line;
    data_ = static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(count) * sizeof(float)));
    if (data_ == nullptr) throw std::bad_alloc();
    capacity_ = count;
    g_held += count * static_cast<int64_t>(sizeof(float));
  }

  float* data_ = nullptr;
  int64_t capacity_ = 0;
};

thread_local Scratch t_run, t_task;

}  // namespace

float* run_scratch(int64_t floats) { return t_run.floats(floats); }
float* task_scratch(int64_t floats) { return t_task.floats(floats); }
int64_t scratch_bytes() { return g_held.load(); }

}  // namespace fuseline

// What the threads of this process hold for the native operators, in bytes.
extern "C" __attribute__((visibility("default"))) int64_t fuseline_scratch_bytes() { return fuseline::scratch_bytes(); }
