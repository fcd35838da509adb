// Running tasks at once, and what happens when one of them throws.
#pragma once
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "parallel.h"

namespace fuseline {

// Keeps the first exception of tasks that may not throw where they run, and throws it where it can be caught.
class FirstError {
 public:
  void run(const Task& task, size_t index) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      task(index);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  // After all tasks have ended.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

// Short-lived threads: an optimizer step takes milliseconds, starting a thread some ten microseconds.
inline Parallel with_threads(int threads) {
  return [threads](size_t count, const Task& task) {
    std::atomic<size_t> next{0};
    FirstError error;
    const auto work = [&] {
      for (size_t index = next++; index < count; index = next++) error.run(task, index);
    };
    const size_t helpers = std::min<size_t>(threads > 1 ? threads - 1 : 0, count > 0 ? count - 1 : 0);
    std::vector<std::thread> pool;
    pool.reserve(helpers);
    try {
      for (size_t index = 0; index < helpers; ++index) pool.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads to be had: those that started share the work
    }
    work();
    for (std::thread& thread : pool) thread.join();
    error.rethrow();
  };
}

}  // namespace fuseline
