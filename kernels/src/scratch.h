// Per-thread scratch memory that grows and is kept: fresh memory costs page faults on every step.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>

namespace fuseline {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  // Uninitialised, aligned to a cache line, valid until the next call on the same object.
  float* floats(int64_t count) {
    if (count > capacity_) grow(count);
    return data_;
  }

 private:
  void grow(int64_t count) {
    std::free(data_);
    capacity_ = 0;
    const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
    data_ = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    capacity_ = count;
  }

  float* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace fuseline
