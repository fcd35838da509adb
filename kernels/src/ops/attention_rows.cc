// Attention over some tokens of each sequence, which lie behind each other as rows: padding is not among them.
#include <vector>

#include "ops/all.h"
#include "ops/attention.h"
#include "scratch.h"

namespace fuseline {
namespace {

// The sequences that the tokens were taken from.
struct Sizes {
  int64_t batch, queries, keys;
};

Sizes read_sizes(const Tensor& sizes) {
  const int64_t* values = sizes.ints();
  for (int i = 0; i < 3; ++i)
    require(values[i] >= 0, "sizes must be [batch, queries, keys], and " + std::to_string(values[i]) + " is none");
  return {values[0], values[1], values[2]};
}

// Which tokens there are, from the numbers of their rows in [batch, length].
class Tokens {
 public:
  Tokens(const char* name, const Tensor& rows, int64_t count, int64_t batch, int64_t length)
      : length_(length), offsets_(batch + 1, 0), places_(count) {
    require(rows || count == batch * length, std::string("without ") + name + " there must be " + std::to_string(batch) +
                                                 "×" + std::to_string(length) + " tokens, not " + std::to_string(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows ? rows.ints()[i] : i;
      const bool fits = row < batch * length && row > (i == 0 ? -1 : rows ? rows.ints()[i - 1] : i - 1);
      if (!fits)
        require(false, std::string(name) + " must rise and stay below " + std::to_string(batch) + "×" +
                           std::to_string(length) + ", but has " + std::to_string(row) + " at " + std::to_string(i));
      places_[i] = row % length;
      ++offsets_[row / length + 1];
    }
    for (int64_t entry = 0; entry < batch; ++entry) {
      longest_ = std::max(longest_, offsets_[entry + 1]);
      offsets_[entry + 1] += offsets_[entry];
    }
  }

  int64_t longest() const { return longest_; }
  Present present() const {
    return {offsets_.data(), places_.data(), static_cast<int64_t>(places_.size()), length_};
  }

 private:
  int64_t length_, longest_ = 0;
  std::vector<int64_t> offsets_, places_;
};

void require_addition(const char* name, const Tensor& tensor, const Sizes& sizes, int64_t heads) {
  if (!tensor) return;
  const Shape wanted = {sizes.batch, heads, sizes.queries, sizes.keys};
  bool fits = tensor.shape.size() <= 4;
  for (size_t i = 1; fits && i <= tensor.shape.size(); ++i) {
    const int64_t size = tensor.shape[tensor.shape.size() - i];
    fits = size == 1 || size == wanted[4 - i];
  }
  require(fits, std::string(name) + " has the shape " + text(tensor.shape) + ", which does not broadcast to " + text(wanted));
}

// Queries, keys and values of one node, and the tokens that they belong to.
struct Rows {
  Tokens queries, keys;
  Operands operands;

  Rows(const Sizes& sizes, Tokens query_tokens, Tokens key_tokens, Strided q, Strided k, Strided v, int64_t heads,
       int64_t groups, int64_t width)
      : queries(std::move(query_tokens)), keys(std::move(key_tokens)), operands{q, k, v, sizes.batch, queries.longest(), keys.longest(), heads, groups, width} {
    operands.present_queries = queries.present();
    operands.present_keys = keys.present();
    require_heads(operands);
  }
  Rows(const Rows&) = delete;

  AttentionShapes shapes() const {
    const int64_t rows = operands.query_rows();
    return {{rows, operands.heads, operands.width}, {operands.heads, rows, 2}};
  }
};

// Inputs from `first` on: q, k, v; from `rows` on: query_rows, key_rows, sizes.
Rows read_separate(const Context& context, size_t first, size_t mask, size_t rows) {
  const Tensor q = context.input(first), k = context.input(first + 1), v = context.input(first + 2);
  const Sizes sizes = read_sizes(context.input(rows + 2));
  require_addition("mask", context.input(mask), sizes, q.shape[1]);
  require_addition("bias", context.input(mask + 1), sizes, q.shape[1]);
  return {sizes,
          Tokens("query_rows", context.input(rows), q.shape[0], sizes.batch, sizes.queries),
          Tokens("key_rows", context.input(rows + 1), k.shape[0], sizes.batch, sizes.keys),
          separate_part(q.floats(), q.shape[1], q.shape[2]),
          separate_part(k.floats(), k.shape[1], k.shape[2]),
          separate_part(v.floats(), k.shape[1], k.shape[2]),
          q.shape[1],
          k.shape[1],
          q.shape[2]};
}

// From `rows` on: rows, sizes.
Rows read_packed(const Context& context, size_t first, size_t mask, size_t rows, bool interleaved) {
  const Tensor qkv = context.input(first);
  require(qkv.shape[interleaved ? 2 : 1] == 3,
          std::string("qkv must be ") + (interleaved ? "[rows, heads, 3, width]" : "[rows, 3, heads, width]") + ", not " +
              text(qkv.shape));
  const int64_t heads = qkv.shape[interleaved ? 1 : 2], width = qkv.shape[3];
  const Sizes sizes = read_sizes(context.input(rows + 1));
  require(sizes.queries == sizes.keys, "packed queries and keys are of one length, not of " +
                                           std::to_string(sizes.queries) + " and " + std::to_string(sizes.keys));
  require_addition("mask", context.input(mask), sizes, heads);
  require_addition("bias", context.input(mask + 1), sizes, heads);
  const Tokens tokens("rows", context.input(rows), qkv.shape[0], sizes.batch, sizes.keys);
  const auto part = [&](int64_t index) { return packed_part(qkv.floats(), heads, width, interleaved, index); };
  return {sizes, tokens, tokens, part(0), part(1), part(2), heads, heads, width};
}

void attention(const Context& context) {
  const Rows rows = read_separate(context, 0, 3, 7);
  attention_forward(context, rows.operands, rows.shapes(), 3, false);
}

void attention_packed(const Context& context) {
  const bool interleaved = context.attribute(kInterleaved) != 0;
  const Rows rows = read_packed(context, 0, 1, 5, interleaved);
  attention_forward(context, rows.operands, rows.shapes(), 1, interleaved);
}

void attention_gradient(const Context& context) {
  const Rows rows = read_separate(context, 1, 4, 11);
  const SeparateGradients d(context, context.input(1).shape, context.input(2).shape);
  Operands gradients = rows.operands;
  gradients.q.data = d.q;
  gradients.k.data = d.k;
  gradients.v.data = d.v;
  attention_backward(context, rows.operands, gradients, 4, 3);
}

void attention_packed_gradient(const Context& context) {
  const Shape shape = context.input(1).shape;
  const bool interleaved = context.input(7).floats()[2] != 0;
  const Rows rows = read_packed(context, 1, 2, 9, interleaved);
  float* dqkv = context.output(0, shape);
  if (dqkv == nullptr) dqkv = run_scratch(elements(shape));
  Operands gradients = rows.operands;
  for (Strided* part : {&gradients.q, &gradients.k, &gradients.v})
    part->data = dqkv + (part->data - context.input(1).floats());
  attention_backward(context, rows.operands, gradients, 2, 1);
}

}  // namespace

Definitions attention_rows_definitions() {
  const Port q{"q", "Q,H,D"}, k{"k", "T,G,D"}, v{"v", "T,G,D"}, dy{"dy", "Q,H,D"}, y{"y", "Q,H,D"};
  const Port qkv{"qkv", "Q,3,H,D/Q,H,3,D"}, mask{"mask", ""}, bias{"bias", ""};
  const Port ratio{"ratio", "1"}, seed{"seed", "1", abi::kInt64}, key{"key", "1", abi::kInt64};
  const Port statistics{"statistics", "H,Q,2"}, state{"state", "4"};
  const Port rows{"rows", "Q?", abi::kInt64}, sizes{"sizes", "3", abi::kInt64};
  const Port query_rows{"query_rows", "Q?", abi::kInt64}, key_rows{"key_rows", "T?", abi::kInt64};
  const std::vector<Port> results = {y, optional("statistics", "H,Q,2"), optional("state", "4"),
                                     optional("key", "1", abi::kInt64)};
  const Port dmask = optional("dmask", ""), dbias = optional("dbias", "");
  return {
      {"FusedAttentionRows",
       {q, k, v, mask, bias, ratio, seed, query_rows, key_rows, sizes},
       results,
       attention_attributes(false),
       attention},
      {"FusedAttentionRowsGrad",
       {dy, q, k, v, mask, bias, ratio, y, statistics, state, key, query_rows, key_rows, sizes},
       {optional("dq", "Q,H,D"), optional("dk", "T,G,D"), optional("dv", "T,G,D"), dmask, dbias},
       {},
       attention_gradient},
      {"FusedAttentionPackedRows",
       {qkv, mask, bias, ratio, seed, rows, sizes},
       results,
       attention_attributes(true),
       attention_packed},
      {"FusedAttentionPackedRowsGrad",
       {dy, qkv, mask, bias, ratio, y, statistics, state, key, rows, sizes},
       {optional("dqkv", "Q,3,H,D/Q,H,3,D"), dmask, dbias},
       {},
       attention_packed_gradient},
  };
}

}  // namespace fuseline
