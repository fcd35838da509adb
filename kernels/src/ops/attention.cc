// Attention and its gradient: the computation, and its forms over whole sequences.
#include "ops/attention.h"

#include <cmath>
#include <cstring>

#include "ops/all.h"
#include "ops/dropout.h"
#include "scratch.h"

namespace fuseline {

std::vector<Attribute> attention_attributes(bool packed) {
  std::vector<Attribute> attributes = {{"scale", false, 0}, {"causal", true, 0}, {"stream", true, 0}, {"lowest", false, 0}};
  if (packed) attributes.push_back({"interleaved", true, 0});
  return attributes;
}

Strided separate_part(float* data, int64_t heads, int64_t width) { return {data, heads * width, width}; }

Strided packed_part(float* data, int64_t heads, int64_t width, bool interleaved, int64_t index) {
  const int64_t part = interleaved ? width : heads * width, head = interleaved ? 3 * width : width;
  return {data == nullptr ? nullptr : data + index * part, 3 * heads * width, head};
}

void require_heads(const Operands& o) {
  require(o.groups > 0 && o.heads % o.groups == 0, std::to_string(o.heads) + " heads of queries do not share " +
                                                       std::to_string(o.groups) + " heads of keys and values evenly");
  require(o.width > 0, "heads of width 0 have no scores");
}

namespace {

constexpr int64_t kScoreFloats = 30 << 10;  // of a block of queries: with their gradients, half a core's cache
constexpr int64_t kSmallestBlock = 24, kLargestBlock = 192;

Operands separate(const Shape& q, const Shape& k, float* q_data, float* k_data, float* v_data) {
  return {separate_part(q_data, q[2], q[3]),
          separate_part(k_data, k[2], k[3]),
          separate_part(v_data, k[2], k[3]),
          q[0],
          q[1],
          k[1],
          q[2],
          k[2],
          q[3]};
}

Operands packed(const Shape& shape, bool interleaved, float* data) {
  const int64_t heads = shape[interleaved ? 2 : 3], width = shape[4];
  const auto part = [&](int64_t index) { return packed_part(data, heads, width, interleaved, index); };
  return {part(0), part(1), part(2), shape[0], shape[1], shape[1], heads, heads, width};
}

AttentionShapes whole(const Operands& o) {
  return {{o.batch, o.queries, o.heads, o.width}, {o.batch, o.heads, o.queries, 2}};
}

Operands read_separate(const Context& context, size_t first) {
  const Tensor q = context.input(first), k = context.input(first + 1), v = context.input(first + 2);
  const Operands o = separate(q.shape, k.shape, q.floats(), k.floats(), v.floats());
  require_heads(o);
  return o;
}

Operands read_packed(const Context& context, size_t index, bool interleaved) {
  const Tensor qkv = context.input(index);
  require(qkv.shape[interleaved ? 3 : 2] == 3,
          std::string("qkv must be ") + (interleaved ? "[batch, tokens, heads, 3, width]" : "[batch, tokens, 3, heads, width]") +
              ", not " + text(qkv.shape));
  const Operands o = packed(qkv.shape, interleaved, qkv.floats());
  require_heads(o);
  return o;
}

// Strides of an addition to the scores [batch, heads, queries, keys]; an axis of size 1 repeats.
Additive additive(const Tensor& tensor) {
  if (!tensor) return {};
  Shape shape = tensor.shape;
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  int64_t strides[4], step = 1;
  for (int axis = 3; axis >= 0; --axis) {
    strides[axis] = shape[axis] == 1 ? 0 : step;
    step *= shape[axis];
  }
  return {tensor.floats(), strides[0], strides[1], strides[2], strides[3]};
}

// Queries at a time: blocks of nearly equal size.
int64_t block_of(const Operands& o) {
  const int64_t largest = std::clamp(kScoreFloats / std::max<int64_t>(o.keys, 1), kSmallestBlock, kLargestBlock);
  const int64_t blocks = std::max<int64_t>((o.queries + largest - 1) / largest, 1);
  return std::max<int64_t>((o.queries + blocks - 1) / blocks, 1);
}

Attention arguments(const Context& context, const Operands& o, size_t mask_index, const float* state, int64_t key) {
  Attention a{};
  a.q = o.q;
  a.k = o.k;
  a.v = o.v;
  a.present_queries = o.present_queries;
  a.present_keys = o.present_keys;
  a.mask = additive(context.input(mask_index));
  a.bias = additive(context.input(mask_index + 1));
  a.heads = o.heads;
  a.groups = o.groups;
  a.queries = o.queries;
  a.keys = o.keys;
  a.width = o.width;
  a.block = block_of(o);
  a.scale = state[0];
  a.causal = state[1] != 0;
  a.lowest = state[3];
  a.dropout = dropout_of(*context.input(mask_index + 2).floats(), key);
  return a;
}

Strided output_strides(float* data, const Operands& o) { return separate_part(data, o.heads, o.width); }

// Of the average sequence.
int64_t cost_of_head(const Operands& o) {
  return o.query_rows() / o.batch * o.key_rows() / o.batch * std::max<int64_t>(o.width / 8, 1);
}

// Without a query or a key there are no scores, and every result is zero.
bool nothing_to_see(const Operands& o) { return o.batch * o.queries * o.keys == 0; }

void clear(float* data, int64_t count) {
  if (data != nullptr && count > 0) std::memset(data, 0, sizeof(float) * count);
}

// The tasks of the backward pass must not share a row of dbias: a bias repeated over the batch (or the heads) keeps
// the batch (or everything) within one task.
template <class Body>
void for_groups(const Context& context, const Operands& o, const Additive* dbias, const Body& body) {
  const int64_t cost = 2 * cost_of_head(o) * (o.heads / o.groups);
  if (dbias == nullptr || (dbias->batch != 0 && dbias->head != 0))
    return for_range(context.parallel(), o.batch * o.groups, cost, body);
  if (dbias->head == 0 && dbias->batch == 0) return body(0, o.batch * o.groups);
  if (dbias->head == 0)
    return for_range(context.parallel(), o.batch, cost * o.groups,
                     [&](int64_t begin, int64_t end) { body(begin * o.groups, end * o.groups); });
  for_range(context.parallel(), o.groups, cost * o.batch, [&](int64_t begin, int64_t end) {
    for (int64_t batch = 0; batch < o.batch; ++batch) body(batch * o.groups + begin, batch * o.groups + end);
  });
}

}  // namespace

void attention_forward(const Context& context, const Operands& o, const AttentionShapes& shapes, size_t mask_index,
                       bool interleaved) {
  const double scale = context.attribute(kScale) != 0 ? context.attribute(kScale) : 1 / std::sqrt(o.width);
  const float state[4] = {static_cast<float>(scale), context.attribute(kCausal) != 0 ? 1.0f : 0.0f,
                          interleaved ? 1.0f : 0.0f, static_cast<float>(context.attribute(kLowest))};
  const int64_t key =
      dropout_key(*context.input(mask_index + 3).ints(), static_cast<int64_t>(context.attribute(kStream)));
  Attention a = arguments(context, o, mask_index, state, key);
  a.y = output_strides(context.output(0, shapes.y), o);
  a.statistics = context.output(1, shapes.statistics);
  if (a.statistics == nullptr) a.statistics = run_scratch(elements(shapes.statistics));
  if (float* output = context.output(2, {4})) std::memcpy(output, state, sizeof state);
  if (void* output = context.output_data(3, {1})) *static_cast<int64_t*>(output) = key;
  if (nothing_to_see(o)) {
    clear(a.y.data, elements(shapes.y));
    return clear(a.statistics, elements(shapes.statistics));
  }
  for_range(context.parallel(), o.batch * o.heads, cost_of_head(o), [&](int64_t begin, int64_t end) {
    Attention part = a;
    part.scratch = task_scratch(routines().attention_forward_scratch(a, begin, end));
    routines().attention_forward(part, begin, end);
  });
}

void attention_backward(const Context& context, const Operands& o, const Operands& gradients, size_t mask_index,
                        size_t mask_output) {
  const Tensor mask = context.input(mask_index), bias = context.input(mask_index + 1);
  require(context.output(mask_output, mask.shape) == nullptr,
          "the mask gets no gradient; what is trained must come in as bias");
  float* dbias = context.output(mask_output + 1, bias.shape);
  AttentionBackward b{};
  const int64_t key = *context.input(mask_index + 6).ints();
  b.forward = arguments(context, o, mask_index, context.input(mask_index + 5).floats(), key);
  b.forward.y = output_strides(context.input(mask_index + 3).floats(), o);
  b.forward.statistics = context.input(mask_index + 4).floats();
  b.dy = output_strides(context.input(0).floats(), o);
  b.dq = gradients.q;
  b.dk = gradients.k;
  b.dv = gradients.v;
  b.dbias = dbias;
  clear(dbias, bias.size());
  if (nothing_to_see(o)) {
    clear(gradients.q.data, o.query_rows() * o.heads * o.width);
    clear(gradients.k.data, o.key_rows() * o.groups * o.width);
    return clear(gradients.v.data, o.key_rows() * o.groups * o.width);
  }
  for_groups(context, o, dbias == nullptr ? nullptr : &b.forward.bias, [&](int64_t begin, int64_t end) {
    AttentionBackward part = b;
    part.forward.scratch = task_scratch(routines().attention_backward_scratch(b, begin, end));
    routines().attention_backward(part, begin, end);
  });
}

SeparateGradients::SeparateGradients(const Context& context, const Shape& q_shape, const Shape& k_shape)
    : q(context.output(0, q_shape)), k(context.output(1, k_shape)), v(context.output(2, k_shape)) {
  const int64_t queries = elements(q_shape), keys = elements(k_shape);
  float* spare = q == nullptr || k == nullptr || v == nullptr ? run_scratch(queries + 2 * keys) : nullptr;
  if (q == nullptr) q = spare;
  if (k == nullptr) k = spare + queries;
  if (v == nullptr) v = spare + queries + keys;
}

namespace {

void attention(const Context& context) {
  const Operands o = read_separate(context, 0);
  attention_forward(context, o, whole(o), 3, false);
}

void attention_packed(const Context& context) {
  const bool interleaved = context.attribute(kInterleaved) != 0;
  const Operands o = read_packed(context, 0, interleaved);
  attention_forward(context, o, whole(o), 1, interleaved);
}

void attention_gradient(const Context& context) {
  const Operands o = read_separate(context, 1);
  const Shape q = context.input(1).shape, k = context.input(2).shape;
  const SeparateGradients d(context, q, k);
  attention_backward(context, o, separate(q, k, d.q, d.k, d.v), 4, 3);
}

void attention_packed_gradient(const Context& context) {
  const Shape shape = context.input(1).shape;
  const bool interleaved = context.input(7).floats()[2] != 0;
  const Operands o = read_packed(context, 1, interleaved);
  float* dqkv = context.output(0, shape);
  if (dqkv == nullptr) dqkv = run_scratch(elements(shape));
  attention_backward(context, o, packed(shape, interleaved, dqkv), 2, 1);
}

}  // namespace

Definitions attention_definitions() {
  const Port q{"q", "B,S,H,D"}, k{"k", "B,T,G,D"}, v{"v", "B,T,G,D"}, dy{"dy", "B,S,H,D"}, y{"y", "B,S,H,D"};
  const Port mask{"mask", "^B,H,S,T?"}, bias{"bias", "^B,H,S,T?"};
  const Port qkv{"qkv", "B,S,3,H,D/B,S,H,3,D"}, own_mask{"mask", "^B,H,S,S?"}, own_bias{"bias", "^B,H,S,S?"};
  const Port ratio{"ratio", "1"}, seed{"seed", "1", abi::kInt64}, key{"key", "1", abi::kInt64};
  const Port statistics{"statistics", "B,H,S,2"}, state{"state", "4"};
  const std::vector<Port> results = {y, optional("statistics", "B,H,S,2"), optional("state", "4"),
                                     optional("key", "1", abi::kInt64)};
  // There is no gradient of the mask; its place keeps the bias's at the position of the bias.
  const Port dmask = optional("dmask", ""), dbias = optional("dbias", "");
  return {
      {"FusedAttention", {q, k, v, mask, bias, ratio, seed}, results, attention_attributes(false), attention},
      {"FusedAttentionGrad",
       {dy, q, k, v, mask, bias, ratio, y, statistics, state, key},
       {optional("dq", "B,S,H,D"), optional("dk", "B,T,G,D"), optional("dv", "B,T,G,D"), dmask, dbias},
       {},
       attention_gradient},
      {"FusedAttentionPacked", {qkv, own_mask, own_bias, ratio, seed}, results, attention_attributes(true), attention_packed},
      {"FusedAttentionPackedGrad",
       {dy, qkv, own_mask, own_bias, ratio, y, statistics, state, key},
       {optional("dqkv", "B,S,3,H,D/B,S,H,3,D"), dmask, dbias},
       {},
       attention_packed_gradient},
  };
}

}  // namespace fuseline
