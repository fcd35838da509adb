// Sums over rows by several threads: one partial row per chunk, added up in the order of the chunks.
#pragma once
#include <cstring>

#include "compute/kernels.h"
#include "op.h"
#include "scratch.h"

namespace fuseline {

constexpr int64_t kReductionChunks = 32;

// Runs body(partial, begin, end) over the rows, `partial` being `widths` zeroed floats of the chunk's own, then
// adds the partials into `totals`: consecutive vectors of `width`, each of which may be unwanted (null).
template <class Body>
void reduce_rows(const Context& context, int64_t rows, int64_t width, const std::vector<float*>& totals,
                 const Body& body) {
  const int64_t stride = width * static_cast<int64_t>(totals.size());
  const int64_t chunks = chunk_count(rows, width, kReductionChunks);
  float* partials = run_scratch(chunks * stride);
  std::memset(partials, 0, sizeof(float) * chunks * stride);
  for_chunks(context.parallel(), rows, chunks,
             [&](int64_t chunk, int64_t begin, int64_t end) { body(partials + chunk * stride, begin, end); });
  for (size_t i = 0; i < totals.size(); ++i)
    if (totals[i] != nullptr)
      routines().column_sum({partials + static_cast<int64_t>(i) * width, totals[i], chunks, stride}, 0, width);
}

}  // namespace fuseline
