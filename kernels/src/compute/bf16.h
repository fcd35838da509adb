// The layout that packing and product of bf16 operands share.
#pragma once
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/simd.h"

namespace fuseline::FUSELINE_ISA {

constexpr int64_t kLeftRows = 12;  // of the left operand together: with two vectors of columns, 24 accumulators

static FL_INLINE int64_t pairs_in(int64_t depth) { return (depth + 1) / 2; }

}  // namespace fuseline::FUSELINE_ISA
