// Every vectorised routine: its arguments, and the table that holds it once per instruction set.
//
// A routine works on the items [begin, end) of its arguments (rows, elements, blocks: said at each), so that
// the operators can split the work as they like.
#pragma once
#include <stdint.h>

namespace fuseline {

// Rows. y = (x − mean)·inv_std·scale + bias; bias may be null.
struct LayerNormForward {
  const float *x, *scale, *bias;
  float *y, *mean, *inv_std;
  int64_t width;
  float epsilon;
};
// Rows. dscale and dbias are partial sums of this range, each `width` long and already zeroed; may be null.
struct LayerNormBackward {
  const float *dy, *x, *scale, *mean, *inv_std;
  float *dx, *dscale, *dbias;
  int64_t width;
};
// Rows. y = x·inv_rms·(offset + scale).
struct RmsNormForward {
  const float *x, *scale;
  float *y, *inv_rms;
  int64_t width;
  float epsilon, offset;
};
struct RmsNormBackward {
  const float *dy, *x, *scale, *inv_rms;
  float *dx, *dscale;
  int64_t width;
  float offset;
};
// Rows. y = gelu(x + bias); bias may be null.
struct GeluForward {
  const float *x, *bias;
  float* y;
  int64_t width;
};
// Rows. dbias is a partial sum of this range, already zeroed; may be null.
struct GeluBackward {
  const float *dy, *x, *bias;
  float *dx, *dbias;
  int64_t width;
};
// Columns: out[c] = Σ over rows of x[row·stride + c].
struct ColumnSum {
  const float* x;
  float* out;
  int64_t rows, stride;
};
// Rows. out (one row, already zeroed) gets the sum of the rows.
struct RowSum {
  const float* x;
  float* out;
  int64_t width;
};
// Elements. Adds up squares; `result` holds one double, already zeroed.
struct SquareSum {
  const float* x;
  double* result;
};
// Elements. One AdamW update with torch's arithmetic.
struct AdamWUpdate {
  float *parameter, *gradient, *first, *second;
  float gradient_scale, decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float step_size, inverse_root_correction2, epsilon;
  bool zero_gradient;
};
// Elements. One SGD update with torch's arithmetic; momentum buffer may be null.
struct SgdUpdate {
  float *parameter, *gradient, *momentum_buffer;
  float gradient_scale, learning_rate, momentum, dampening, weight_decay;
  bool nesterov, first_step, zero_gradient;
};

// Rows of the vocabulary: zeroes them (columns [first, last)) and adds every row of dy whose id is theirs.
struct EmbeddingBackward {
  const float* dy;
  const int64_t* ids;
  float* dweight;
  int64_t count, width, first, last, vocabulary, padding;
};
// Rows. Statistics are the top of a row and the logarithm of the sum of exponentials below it; of an ignored row the
// second is infinite.
struct CrossEntropyForward {
  const float* logits;
  const int64_t* labels;
  float *statistics, *losses;
  int64_t width, ignored;
  float smoothing;
};
struct CrossEntropyBackward {
  const float *logits, *statistics;
  const int64_t* labels;
  float* dlogits;
  int64_t width;
  float scale, smoothing;
  bool bypass_cache;
};
// Classes. Scores of tokens x against the rows of `weight`, a chunk of tokens at a time: scores[class][token], tokens
// padded to whole panels with rows of zeros. First the packing of the tokens (items have no meaning), then the scores of
// a range of classes with their statistics, and, those of all ranges combined, their gradients.
constexpr int64_t kLossPadding = 32;  // tokens of the widest panel
struct LinearLoss {
  const float *weight, *bias, *x;  // [classes, width]; null or [classes]; [tokens, width]
  float *depth_panels, *width_panels;  // x in panels of tokens, and of columns
  float *scores, *scratch;
  // By token: of a range of classes the top, the sum of exponentials below it and the sum; of all of them the top, the
  // logarithm of the sum of exponentials and what the gradient is multiplied by.
  float *tops, *sums, *totals;
  const float *top, *log_sum, *scale;
  const int64_t* labels;
  float *dx, *dweight, *dbias;  // dx: of the range's classes alone; each may be null
  int64_t tokens, width, classes;  // tokens: padded
  float smoothing;
  bool add;  // to dweight and dbias
};
// Rows.
struct SoftmaxForward {
  const float* x;
  float* y;
  int64_t width;
};
struct SoftmaxBackward {
  const float *dy, *y;
  float* dx;
  int64_t width;
};
// Which elements a dropout keeps: a function of (key, row, column).
struct Dropout {
  uint64_t key;
  uint32_t threshold;  // 0: keeps everything
  float scale;
};
// Rows. y = dropout(x + bias) + residual; bias and residual may be null.
struct DropoutAddForward {
  const float *x, *bias, *residual;
  float* y;
  int64_t width;
  Dropout dropout;
};
// Rows. dbias is a partial sum of this range, already zeroed; may be null.
struct DropoutAddBackward {
  const float* dy;
  float *dx, *dbias;
  int64_t width;
  Dropout dropout;
};
// Tokens, each of `heads` rows: rotates the pairs (i, i + rotated/2); `inverse` applies the transpose.
struct Rotary {
  const float *x, *cos, *sin;
  float* y;
  int64_t heads, width, rotated, table_tokens;
  bool inverse;
};
// Elements. y = silu(gate)·up.
struct SwiGluForward {
  const float *gate, *up;
  float* y;
};
struct SwiGluBackward {
  const float *dy, *gate, *up;
  float *dgate, *dup;
};

// c[rows, columns] = aᵀ·b with a[depth, rows], b[depth, columns]. First the packing, over blocks of
// kWeightGradientDepth of the depth; then the product, over rows of c, for columns [first, last) that begin at a
// panel. `scratch` is private to the call, `panels` shared by all.
constexpr int64_t kWeightGradientDepth = 256, kWeightGradientRows = 6;
struct WeightGradient {
  const float *a, *b;
  float *c, *sums;  // sums: of the columns of a, written with the first columns of c; may be null
  float *panels, *scratch;
  int64_t depth, rows, columns, first_column, last_column;
};
// An operand of a product in bf16, item (i, k) of it at from[i·stride + k] (along_rows) or at from[k·stride + i], from
// floats that are rounded or from bf16. Items, in multiples of kBf16Items.
constexpr int64_t kBf16Items = 96;  // whole blocks of the left and of the right operand
struct Bf16Pack {
  const float* from;
  const uint16_t* from_bf16;  // null, or in place of `from`
  uint32_t* to;
  int64_t items, depth, stride;
  bool along_rows, left;
  uint16_t* copy;  // null, or where floats along rows go in bf16, as they lie
};
// Rows of c[rows, columns] = start + left·rightᵀ, in multiples of kBf16Items, for columns [first, last), `first` being
// such a multiple too. `start` is one row, rounded up to whole panels.
struct Bf16Product {
  const uint32_t *left, *right;
  const float* start;
  float* c;
  int64_t columns, depth, first_column, last_column;
};
// A tensor of rows of `width` contiguous floats, by token and head; the tokens of a sequence follow each other.
struct Strided {
  float* data;
  int64_t token, head;
};
// Which tokens of the sequences there are: those of sequence b are the rows offsets[b] … offsets[b + 1], each with its
// place in the whole sequence. Null: all of them.
struct Present {
  const int64_t *offsets, *places;
  int64_t rows, length;  // of all sequences together; of a whole sequence
};
// Added to the scores; a stride of zero repeats. data may be null.
struct Additive {
  const float* data;
  int64_t batch, head, query, key;
};
// Heads (batch × heads). scratch is private to the call.
struct Attention {
  Strided q, k, v, y;
  Additive mask, bias;
  Present present_queries, present_keys;
  // The maximum of each row of scores and the inverse of its sum: [batch, heads, queries, 2], or of the present
  // queries [heads, rows, 2].
  float* statistics;
  float* scratch;
  int64_t heads, groups, queries, keys, width;  // queries, keys: of the longest sequence
  int64_t block;  // queries at a time
  float scale;
  bool causal;
  float lowest;  // what the mask replaces scores by, below 0; 0: it is only added
  Dropout dropout;
};
// Groups of heads that share keys and values (batch × groups). dbias may be null and is added to.
struct AttentionBackward {
  Attention forward;
  Strided dy, dq, dk, dv;
  float* dbias;
};

#define FUSELINE_ROUTINES(X)                     \
  X(layer_norm_forward, LayerNormForward)        \
  X(layer_norm_backward, LayerNormBackward)      \
  X(rms_norm_forward, RmsNormForward)            \
  X(rms_norm_backward, RmsNormBackward)          \
  X(gelu_erf_forward, GeluForward)               \
  X(gelu_erf_backward, GeluBackward)             \
  X(gelu_tanh_forward, GeluForward)              \
  X(gelu_tanh_backward, GeluBackward)            \
  X(column_sum, ColumnSum)                       \
  X(row_sum, RowSum)                             \
  X(square_sum, SquareSum)                       \
  X(embedding_backward, EmbeddingBackward)       \
  X(cross_entropy_forward, CrossEntropyForward)  \
  X(cross_entropy_backward, CrossEntropyBackward) \
  X(linear_loss_pack, LinearLoss)                \
  X(linear_loss_scores, LinearLoss)              \
  X(linear_loss_gradients, LinearLoss)           \
  X(softmax_forward, SoftmaxForward)             \
  X(softmax_backward, SoftmaxBackward)           \
  X(dropout_add_forward, DropoutAddForward)      \
  X(dropout_add_backward, DropoutAddBackward)    \
  X(rotary, Rotary)                              \
  X(swiglu_forward, SwiGluForward)               \
  X(swiglu_backward, SwiGluBackward)             \
  X(weight_gradient_pack, WeightGradient)        \
  X(weight_gradient, WeightGradient)             \
  X(bf16_pack, Bf16Pack)                         \
  X(bf16_product, Bf16Product)                   \
  X(attention_forward, Attention)                \
  X(attention_backward, AttentionBackward)       \
  X(adamw_update, AdamWUpdate)                   \
  X(sgd_update, SgdUpdate)

// How many floats of scratch memory a routine lays out for these arguments and items: it alone knows.
#define FUSELINE_LAYOUTS(X)                      \
  X(weight_gradient_panels, WeightGradient)      \
  X(weight_gradient_scratch, WeightGradient)     \
  X(linear_loss_scratch, LinearLoss)             \
  X(bf16_pack_size, Bf16Pack)                    \
  X(attention_forward_scratch, Attention)        \
  X(attention_backward_scratch, AttentionBackward)

struct Routines {
  const char* isa;
#define FUSELINE_MEMBER(name, Arguments) void (*name)(const Arguments&, int64_t begin, int64_t end);
  FUSELINE_ROUTINES(FUSELINE_MEMBER)
#undef FUSELINE_MEMBER
#define FUSELINE_MEMBER(name, Arguments) int64_t (*name)(const Arguments&, int64_t begin, int64_t end);
  FUSELINE_LAYOUTS(FUSELINE_MEMBER)
#undef FUSELINE_MEMBER
};

// The table of this machine; FUSELINE_ISA=portable|avx2|avx512 in the environment chooses a lesser one. avx512bf16 is
// avx512 with its own instruction for products of bf16.
const Routines& routines();

#if defined(FUSELINE_ISA)
namespace FUSELINE_ISA {
#define FUSELINE_DECLARE(name, Arguments) void name(const Arguments&, int64_t begin, int64_t end);
FUSELINE_ROUTINES(FUSELINE_DECLARE)
#undef FUSELINE_DECLARE
#define FUSELINE_DECLARE(name, Arguments) int64_t name(const Arguments&, int64_t begin, int64_t end);
FUSELINE_LAYOUTS(FUSELINE_DECLARE)
#undef FUSELINE_DECLARE
}  // namespace FUSELINE_ISA
#endif

}  // namespace fuseline
