// Work splitting. The split depends on the size of the work alone, never on the number of threads, so that
// every result is the same bit for bit on any machine and at any thread count.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace fuseline {

using Task = std::function<void(size_t)>;
// Runs task(0) … task(count-1), in any order and possibly at once.
using Parallel = std::function<void(size_t count, const Task& task)>;

constexpr int64_t kMaximumChunks = 64;
constexpr int64_t kMinimumChunkCost = 1 << 14;  // about ten microseconds: below, waking a thread costs more

inline int64_t chunk_count(int64_t items, int64_t cost_per_item, int64_t maximum = kMaximumChunks) {
  const int64_t wanted = items * std::max<int64_t>(cost_per_item, 1) / kMinimumChunkCost;
  return std::max<int64_t>(1, std::min({wanted, maximum, items}));
}

// body(chunk, begin, end) over `chunks` near-equal ranges of [0, items).
template <class Body>
void for_chunks(const Parallel& parallel, int64_t items, int64_t chunks, const Body& body) {
  if (items <= 0) return;
  if (chunks <= 1) return body(0, 0, items);
  parallel(static_cast<size_t>(chunks), [&](size_t index) {
    const auto chunk = static_cast<int64_t>(index);
    body(chunk, items * chunk / chunks, items * (chunk + 1) / chunks);
  });
}

// body(begin, end), split by cost.
template <class Body>
void for_range(const Parallel& parallel, int64_t items, int64_t cost_per_item, const Body& body) {
  for_chunks(parallel, items, chunk_count(items, cost_per_item),
             [&](int64_t, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace fuseline
