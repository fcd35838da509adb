// Attention and its gradient, for separate and for packed queries, keys and values.
#include <cmath>
#include <cstring>

#include "ops/all.h"
#include "ops/dropout.h"
#include "scratch.h"

namespace fuseline {
namespace {

enum Option { kScale, kCausal, kStream, kInterleaved };

constexpr int64_t kScoreFloats = 30 << 10;  // of a block of queries: with their gradients, half a core's cache
constexpr int64_t kSmallestBlock = 24, kLargestBlock = 192;

// The three operands, however they lie in memory.
struct Operands {
  Strided q, k, v;
  int64_t batch, queries, keys, heads, groups, width;
};

Operands separate(const Shape& q, const Shape& k, float* q_data, float* k_data, float* v_data) {
  const auto strided = [](float* data, const Shape& shape) {
    return Strided{data, shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]};
  };
  return {strided(q_data, q), strided(k_data, k), strided(v_data, k), q[0], q[1], k[1], q[2], k[2], q[3]};
}

Operands packed(const Shape& shape, bool interleaved, float* data) {
  const int64_t heads = shape[interleaved ? 2 : 3], width = shape[4], token = 3 * heads * width;
  const int64_t part = interleaved ? width : heads * width, head = interleaved ? 3 * width : width;
  const auto strided = [&](int64_t index) {
    return Strided{data == nullptr ? nullptr : data + index * part, shape[1] * token, token, head};
  };
  return {strided(0), strided(1), strided(2), shape[0], shape[1], shape[1], heads, heads, width};
}

Operands read_separate(const Context& context, size_t first) {
  const Tensor q = context.input(first), k = context.input(first + 1), v = context.input(first + 2);
  require(q.shape.size() == 4 && k.shape.size() == 4, "q and k must be [batch, tokens, heads, width], not " +
                                                          text(q.shape) + " and " + text(k.shape));
  require(k.shape == v.shape, "k " + text(k.shape) + " and v " + text(v.shape) + " differ in shape");
  require(q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3] && q.shape[2] % k.shape[2] == 0,
          "q " + text(q.shape) + " does not fit k " + text(k.shape) +
              ": batch and width must agree, and the heads of q be a multiple of those of k");
  return separate(q.shape, k.shape, q.floats(), k.floats(), v.floats());
}

Operands read_packed(const Context& context, size_t index, bool interleaved) {
  const Tensor qkv = context.input(index);
  require(qkv.shape.size() == 5 && qkv.shape[interleaved ? 3 : 2] == 3,
          std::string("qkv must be ") + (interleaved ? "[batch, tokens, heads, 3, width]" : "[batch, tokens, 3, heads, width]") +
              ", not " + text(qkv.shape));
  return packed(qkv.shape, interleaved, qkv.floats());
}

// Strides of an addition to the scores [batch, heads, queries, keys]; an axis of size 1 repeats.
Additive additive(const Tensor& tensor, const Operands& o, const char* name) {
  if (!tensor) return {};
  const Shape full = {o.batch, o.heads, o.queries, o.keys};
  Shape shape = tensor.shape;
  require(shape.size() <= 4, std::string(name) + " has more than four axes: " + text(tensor.shape));
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  int64_t strides[4], step = 1;
  for (int axis = 3; axis >= 0; --axis) {
    require(shape[axis] == 1 || shape[axis] == full[axis], std::string(name) + " " + text(tensor.shape) +
                                                               " does not broadcast to the scores " + text(full));
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
  a.mask = additive(context.input(mask_index), o, "mask");
  a.bias = additive(context.input(mask_index + 1), o, "bias");
  a.heads = o.heads;
  a.groups = o.groups;
  a.queries = o.queries;
  a.keys = o.keys;
  a.width = o.width;
  a.block = block_of(o);
  a.scale = state[0];
  a.causal = state[1] != 0;
  a.dropout = dropout_of(*context.input(mask_index + 2).floats(), key);
  return a;
}

Strided output_strides(float* data, const Operands& o) {
  return {data, o.queries * o.heads * o.width, o.heads * o.width, o.width};
}

int64_t padded(int64_t value) { return (value + routines().panel - 1) / routines().panel * routines().panel; }

// As the routine lays the scores out.
int64_t score_stride(const Operands& o) { return padded(o.keys) + routines().panel; }

int64_t cost_of_head(const Operands& o) { return o.queries * o.keys * std::max<int64_t>(o.width / 8, 1); }

void forward(const Context& context, const Operands& o, size_t mask_index, bool interleaved) {
  const double scale = context.attribute(kScale) != 0 ? context.attribute(kScale) : 1 / std::sqrt(o.width);
  const float state[3] = {static_cast<float>(scale), context.attribute(kCausal) != 0 ? 1.0f : 0.0f,
                          interleaved ? 1.0f : 0.0f};
  const int64_t key =
      dropout_key(*context.input(mask_index + 3).ints(), static_cast<int64_t>(context.attribute(kStream)));
  Attention a = arguments(context, o, mask_index, state, key);
  a.y = output_strides(context.output(0, {o.batch, o.queries, o.heads, o.width}), o);
  thread_local Scratch unwanted;
  a.statistics = context.output(1, {o.batch, o.heads, o.queries, 2});
  if (a.statistics == nullptr) a.statistics = unwanted.floats(o.batch * o.heads * o.queries * 2);
  if (float* output = context.output(2, {3})) std::memcpy(output, state, sizeof state);
  if (void* output = context.output_data(3, {1})) *static_cast<int64_t*>(output) = key;
  const int64_t scratch = padded(o.keys) * o.width + padded(o.width) * o.keys + a.block * score_stride(o);
  for_range(context.parallel(), o.batch * o.heads, cost_of_head(o), [&](int64_t begin, int64_t end) {
    thread_local Scratch memory;
    Attention part = a;
    part.scratch = memory.floats(scratch);
    routines().attention_forward(part, begin, end);
  });
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

// Inputs of the gradient: dy, the operands, mask, bias, ratio, y, statistics, state, key; outputs: the operands'
// gradients, from mask_output on the mask's, which there is none of, and the bias's.
void backward(const Context& context, const Operands& o, const Operands& gradients, size_t mask_index,
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
  if (dbias != nullptr) std::memset(dbias, 0, sizeof(float) * bias.size());
  const int64_t wide = padded(o.width), block = b.forward.block;
  const int64_t scratch =
      2 * padded(o.keys) * o.width + wide * o.keys + 2 * wide * block + 2 * block * score_stride(o);
  for_groups(context, o, dbias == nullptr ? nullptr : &b.forward.bias, [&](int64_t begin, int64_t end) {
    thread_local Scratch memory;
    AttentionBackward part = b;
    part.forward.scratch = memory.floats(scratch);
    routines().attention_backward(part, begin, end);
  });
}

// All gradients come from one computation; one that nobody wants still needs a place.
float* or_spare(float* data, Scratch& spare, int64_t count) { return data != nullptr ? data : spare.floats(count); }

void attention(const Context& context) { forward(context, read_separate(context, 0), 3, false); }

void attention_packed(const Context& context) {
  const bool interleaved = context.attribute(kInterleaved) != 0;
  forward(context, read_packed(context, 0, interleaved), 1, interleaved);
}

void attention_gradient(const Context& context) {
  thread_local Scratch spare[3];
  const Operands o = read_separate(context, 1);
  const Shape q = context.input(1).shape, k = context.input(2).shape;
  float* dq = or_spare(context.output(0, q), spare[0], elements(q));
  float* dk = or_spare(context.output(1, k), spare[1], elements(k));
  float* dv = or_spare(context.output(2, k), spare[2], elements(k));
  backward(context, o, separate(q, k, dq, dk, dv), 4, 3);
}

void attention_packed_gradient(const Context& context) {
  thread_local Scratch spare;
  const Shape shape = context.input(1).shape;
  const bool interleaved = context.input(7).floats()[2] != 0;
  const Operands o = read_packed(context, 1, interleaved);
  float* dqkv = or_spare(context.output(0, shape), spare, elements(shape));
  backward(context, o, packed(shape, interleaved, dqkv), 2, 1);
}

std::optional<Dimensions> statistics_of(const Dimensions& y) {
  return Dimensions{y[0], y[2], y[1], {2, ""}};
}

std::optional<Dimensions> separate_statistics(const InputShapes& shapes) {
  if (shapes[0].size() != 4) return std::nullopt;
  return statistics_of(shapes[0]);
}

// The axis of size 3 is the packing, wherever it stands.
std::optional<Dimensions> packed_result(const InputShapes& shapes) {
  const Dimensions& qkv = shapes[0];
  if (qkv.size() != 5) return std::nullopt;
  return Dimensions{qkv[0], qkv[1], qkv[qkv[2].size == 3 ? 3 : 2], qkv[4]};
}

std::optional<Dimensions> packed_statistics(const InputShapes& shapes) {
  const std::optional<Dimensions> y = packed_result(shapes);
  return y ? statistics_of(*y) : std::nullopt;
}

}  // namespace

Definitions attention_definitions() {
  const Input tensor;
  const Output state = optional(fixed(3)), key = {fixed(1), abi::kInt64, abi::kOptional};
  const std::vector<Attribute> attributes = {{"scale", false, 0}, {"causal", true, 0}, {"stream", true, 0}};
  std::vector<Attribute> packed_attributes = attributes;
  packed_attributes.push_back({"interleaved", true, 0});
  return {
      {"FusedAttention",
       {tensor, tensor, tensor, tensor, tensor, tensor, kIntInput},
       {{same_as(0)}, optional(separate_statistics), state, key},
       attributes,
       attention},
      {"FusedAttentionGrad",
       {tensor, tensor, tensor, tensor, tensor, tensor, tensor, tensor, tensor, tensor, kIntInput},
       {optional(same_as(1)), optional(same_as(2)), optional(same_as(3)), optional(same_as(4)), optional(same_as(5))},
       {},
       attention_gradient},
      {"FusedAttentionPacked",
       {tensor, tensor, tensor, tensor, kIntInput},
       {{packed_result}, optional(packed_statistics), state, key},
       packed_attributes,
       attention_packed},
      {"FusedAttentionPackedGrad",
       {tensor, tensor, tensor, tensor, tensor, tensor, tensor, tensor, kIntInput},
       {optional(same_as(1)), optional(same_as(2)), optional(same_as(3))},
       {},
       attention_packed_gradient},
  };
}

}  // namespace fuseline
