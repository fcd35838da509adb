// What the forms of attention share: operands however they lie in memory, and the two computations over them.
#pragma once
#include "compute/kernels.h"
#include "op.h"

namespace fuseline {

// queries, keys: of the longest sequence.
struct Operands {
  Strided q, k, v;
  int64_t batch, queries, keys, heads, groups, width;
  Present present_queries = {}, present_keys = {};

  int64_t query_rows() const { return present_queries.offsets == nullptr ? batch * queries : present_queries.rows; }
  int64_t key_rows() const { return present_keys.offsets == nullptr ? batch * keys : present_keys.rows; }
};

// The attributes of every form, in this order; the packed ones have the last.
enum AttentionOption { kScale, kCausal, kStream, kLowest, kInterleaved };
std::vector<Attribute> attention_attributes(bool packed);

// One of q, k and v in the axes behind those of the tokens: [heads, width], [3, heads, width] or [heads, 3, width].
Strided separate_part(float* data, int64_t heads, int64_t width);
Strided packed_part(float* data, int64_t heads, int64_t width, bool interleaved, int64_t index);

void require_heads(const Operands& o);

// Where the outputs go, and in which shapes.
struct AttentionShapes {
  Shape y, statistics;
};

// Inputs from mask_index on: mask, bias, ratio, seed; outputs: y, statistics, state, key.
void attention_forward(const Context& context, const Operands& o, const AttentionShapes& shapes, size_t mask_index,
                       bool interleaved);

// Inputs: dy, the operands, mask, bias, ratio, y, statistics, state, key; outputs: the operands' gradients, from
// mask_output on the mask's, which there is none of, and the bias's.
void attention_backward(const Context& context, const Operands& o, const Operands& gradients, size_t mask_index,
                        size_t mask_output);

// The gradients of q, k and v, of these sizes: all come from one computation; one that nobody wants still needs a place.
struct SeparateGradients {
  SeparateGradients(const Context& context, const Shape& q, const Shape& k);
  float *q, *k, *v;
};

}  // namespace fuseline
