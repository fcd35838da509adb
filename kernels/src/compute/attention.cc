// Attention one block of queries at a time: the scores of a block live in scratch memory, never the whole matrix.
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/math.h"
#include "compute/random.h"

namespace fuseline::FUSELINE_ISA {
namespace {

// One head of one batch entry.
struct Head {
  int64_t batch, head, group;  // group: the key/value head it shares
  const float *q, *k, *v;
};

Head head_of(const Attention& a, int64_t batch, int64_t head) {
  const int64_t group = head / (a.heads / a.groups);
  return {batch,
          head,
          group,
          a.q.data + batch * a.q.batch + head * a.q.head,
          a.k.data + batch * a.k.batch + group * a.k.head,
          a.v.data + batch * a.v.batch + group * a.v.head};
}

int64_t padded(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// One panel more than needed: rows a power of two apart would share a few lines of the first cache.
int64_t score_stride(const Attention& a) { return padded(a.keys) + kPanel; }

// The keys that a query may see.
FL_INLINE int64_t visible(const Attention& a, int64_t query) {
  if (!a.causal) return a.keys;
  const int64_t limit = query + a.keys - a.queries + 1;
  return limit < 0 ? 0 : min(limit, a.keys);
}

const float* row_of(const Additive& additive, const Head& head, int64_t query) {
  if (additive.data == nullptr) return nullptr;
  return additive.data + head.batch * additive.batch + head.head * additive.head + query * additive.query;
}

template <class Lanes>
FL_INLINE Vec additive_at(const float* row, int64_t stride, int64_t key, Lanes lanes) {
  return stride == 0 ? set(row[0]) : load(row + key, lanes);
}

// The additions to one row of scores.
struct Terms {
  const float *mask, *bias;
};

Terms terms_of(const Attention& a, const Head& head, int64_t query) {
  return {row_of(a.mask, head, query), row_of(a.bias, head, query)};
}

// scale·score + mask + bias.
template <class Lanes>
FL_INLINE Vec score_at(const Attention& a, const Terms& terms, const float* products, int64_t i, Lanes lanes) {
  Vec value = load(products + i, lanes) * a.scale;
  if (terms.mask != nullptr) value += additive_at(terms.mask, a.mask.key, i, lanes);
  if (terms.bias != nullptr) value += additive_at(terms.bias, a.bias.key, i, lanes);
  return value;
}

uint64_t mask_row(const Attention& a, const Head& head, int64_t query) {
  return static_cast<uint64_t>((head.batch * a.heads + head.head) * a.queries + query);
}

bool holds_nan(const float* values, int64_t count) {
  Sum total;  // of nothing but -inf and what is no number
  sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA { total.add(load(values + i, lanes), slot); });
  return total.total() != total.total();
}

// Whether every score of a row is one that the mask replaces: then queries and keys have no part in them. Scores are
// far from the number that stands for "not seen", so that only a row with a top near it has to be looked at.
bool replaced(const Attention& a, const Terms& terms, int64_t count, float top) {
  const float near = 0.5f * a.lowest;
  if (a.lowest == 0 || terms.mask == nullptr || !(top < near)) return false;
  for (int64_t i = 0; i < count; ++i)
    if (!(terms.mask[a.mask.key == 0 ? 0 : i] < near)) return false;
  return true;
}

// Exponentials of one row, dropped out, not yet divided by their sum. The statistics of the row are its maximum and
// the inverse of the sum.
void exponential_row(const Attention& a, const Head& head, int64_t query, int64_t count, float* scores,
                     float* statistics) {
  const Terms terms = terms_of(a, head, query);
  Vec tops[4];
  for (Vec& top : tops) top = set(-__builtin_inff());
  sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
    const Vec value = score_at(a, terms, scores, i, lanes);
    tops[slot] = max(tops[slot], keep(value, -__builtin_inff(), lanes));
    store(scores + i, value, lanes);
  });
  float top = largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
  float shift = top;
  if (replaced(a, terms, count, top)) {
    memset(scores, 0, sizeof(float) * count);
    top = a.lowest;
    shift = 0;
  }
  // Nothing to see: the row is zero, and so is its gradient. The search for the top passes over what is no number.
  if (top == -__builtin_inff() && !holds_nan(scores, count)) {
    memset(scores, 0, sizeof(float) * count);
    statistics[0] = statistics[1] = 0;
    return;
  }
  const uint64_t key = row_key(a.dropout.key, mask_row(a, head, query));
  Sum total;
  sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
    Vec value = keep(exp(load(scores + i, lanes) - shift), 0, lanes);
    total.add(value, slot);
    if (a.dropout.threshold != 0) value *= dropout_factor(a.dropout, key, i);
    store(scores + i, value, lanes);
  });
  statistics[0] = top;
  statistics[1] = 1.0f / total.total();
}

// Where a routine keeps what in its scratch memory. Without memory, it tells how much is needed.
struct ForwardSpace {
  float *keys, *values, *scores;
  int64_t size;
};

ForwardSpace forward_space(const Attention& a) {
  Layout layout{a.scratch};
  ForwardSpace space;
  space.keys = layout.take(padded(a.keys) * a.width);
  space.values = layout.take(padded(a.width) * a.keys);
  space.scores = layout.take(a.block * score_stride(a));
  space.size = layout.size;
  return space;
}

void forward_head(const Attention& a, const Head& head) {
  const int64_t width = a.width, stride = score_stride(a);
  const auto [keys, values, scores, size] = forward_space(a);
  pack_transposed(head.k, a.k.token, width, a.keys, keys);
  pack(head.v, a.v.token, a.keys, width, values);
  float* y = a.y.data + head.batch * a.y.batch + head.head * a.y.head;
  float* statistics = a.statistics + (head.batch * a.heads + head.head) * a.queries * 2;
  for (int64_t first = 0; first < a.queries; first += a.block) {
    const int64_t rows = min(a.block, a.queries - first), seen = visible(a, first + rows - 1);
    multiply({rows, padded(seen), width, width}, {head.q + first * a.q.token, a.q.token, 1}, keys, scores, stride, false);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t count = visible(a, first + row);
      float* line = scores + row * stride;
      exponential_row(a, head, first + row, count, line, statistics + 2 * (first + row));
      memset(line + count, 0, sizeof(float) * (seen - count));
    }
    multiply({rows, width, seen, a.keys}, {scores, stride, 1}, values, y + first * a.y.token, a.y.token, false);
    // Dividing the result is cheaper than dividing the scores.
    for (int64_t row = first; row < first + rows; ++row)
      sweep(width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
        float* to = y + row * a.y.token + i;
        store(to, load(to, lanes) * statistics[2 * row + 1], lanes);
      });
  }
}

}  // namespace

int64_t attention_forward_scratch(const Attention& a, int64_t, int64_t) { return forward_space(a).size; }

void attention_forward(const Attention& a, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) forward_head(a, head_of(a, item / a.heads, item % a.heads));
}

namespace {

struct BackwardSpace {
  float *keys, *values, *plain_keys, *queries, *dy, *scores, *slopes;
  int64_t size;
};

BackwardSpace backward_space(const AttentionBackward& b) {
  const Attention& a = b.forward;
  const int64_t wide = padded(a.width);
  Layout layout{a.scratch};
  BackwardSpace space;
  space.keys = layout.take(padded(a.keys) * a.width);
  space.values = layout.take(padded(a.keys) * a.width);
  space.plain_keys = layout.take(wide * a.keys);
  space.queries = layout.take(wide * a.block);
  space.dy = layout.take(wide * a.block);
  space.scores = layout.take(a.block * score_stride(a));
  space.slopes = layout.take(a.block * score_stride(a));
  space.size = layout.size;
  return space;
}

// From scores and dP of one row: scores ← P·dropout (for dV), slopes ← dS, the bias's share added on the way.
void slope_row(const AttentionBackward& b, const Head& head, int64_t query, int64_t count, float* scores, float* slopes,
               const float* dy, const float* y) {
  const Attention& a = b.forward;
  const float* statistics = a.statistics + ((head.batch * a.heads + head.head) * a.queries + query) * 2;
  const float top = statistics[0], inverse = statistics[1];
  const Terms terms = terms_of(a, head, query);
  Sum product;
  sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
    product.add(load(dy + i, lanes) * load(y + i, lanes), slot);
  });
  const float delta = product.total();
  const uint64_t key = row_key(a.dropout.key, mask_row(a, head, query));
  if (replaced(a, terms, count, top)) {
    sweep(count, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      const Vec factor = a.dropout.threshold != 0 ? dropout_factor(a.dropout, key, i) : set(1.0f);
      store(scores + i, factor * inverse, lanes);
      store(slopes + i, set(0.0f), lanes);
    });
    return;
  }
  float* dbias = b.dbias == nullptr ? nullptr : b.dbias + (row_of(a.bias, head, query) - a.bias.data);
  Sum flat;
  sweep(count, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
    const Vec p = exp(score_at(a, terms, scores, i, lanes) - top) * inverse;
    const Vec factor = a.dropout.threshold != 0 ? dropout_factor(a.dropout, key, i) : set(1.0f);
    const Vec slope = p * (load(slopes + i, lanes) * factor - delta);
    store(scores + i, p * factor, lanes);
    store(slopes + i, slope * a.scale, lanes);
    if (dbias == nullptr) return;
    if (a.bias.key != 0)
      store(dbias + i, load(dbias + i, lanes) + slope, lanes);
    else
      flat.add(keep(slope, 0, lanes), slot);
  });
  if (dbias != nullptr && a.bias.key == 0) dbias[0] += flat.total();
}

void backward_block(const AttentionBackward& b, const Head& head, const BackwardSpace& w, int64_t first) {
  const Attention& a = b.forward;
  const int64_t rows = min(a.block, a.queries - first), seen = visible(a, first + rows - 1);
  const int64_t stride = score_stride(a), width = a.width;
  const float* q = head.q + first * a.q.token;
  const float* dy = b.dy.data + head.batch * b.dy.batch + head.head * b.dy.head + first * b.dy.token;
  const float* y = a.y.data + head.batch * a.y.batch + head.head * a.y.head + first * a.y.token;
  multiply({rows, padded(seen), width, width}, {q, a.q.token, 1}, w.keys, w.scores, stride, false);
  multiply({rows, padded(seen), width, width}, {dy, b.dy.token, 1}, w.values, w.slopes, stride, false);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t count = visible(a, first + row);
    float *scores = w.scores + row * stride, *slopes = w.slopes + row * stride;
    slope_row(b, head, first + row, count, scores, slopes, dy + row * b.dy.token, y + row * a.y.token);
    memset(scores + count, 0, sizeof(float) * (seen - count));
    memset(slopes + count, 0, sizeof(float) * (seen - count));
  }
  pack(q, a.q.token, rows, width, w.queries);
  pack(dy, b.dy.token, rows, width, w.dy);
  float* dk = b.dk.data + head.batch * b.dk.batch + head.group * b.dk.head;
  float* dv = b.dv.data + head.batch * b.dv.batch + head.group * b.dv.head;
  float* dq = b.dq.data + head.batch * b.dq.batch + head.head * b.dq.head + first * b.dq.token;
  multiply({seen, width, rows, rows}, {w.scores, 1, stride}, w.dy, dv, b.dv.token, true);
  multiply({seen, width, rows, rows}, {w.slopes, 1, stride}, w.queries, dk, b.dk.token, true);
  multiply({rows, width, seen, a.keys}, {w.slopes, stride, 1}, w.plain_keys, dq, b.dq.token, false);
}

void backward_group(const AttentionBackward& b, int64_t batch, int64_t group) {
  const Attention& a = b.forward;
  const BackwardSpace w = backward_space(b);
  const int64_t shared = a.heads / a.groups;
  const Head leader = head_of(a, batch, group * shared);
  pack_transposed(leader.k, a.k.token, a.width, a.keys, w.keys);
  pack_transposed(leader.v, a.v.token, a.width, a.keys, w.values);
  pack(leader.k, a.k.token, a.keys, a.width, w.plain_keys);
  // Blocks of queries and heads of the group add up here; a causal block reaches only the keys it sees.
  for (int64_t key = 0; key < a.keys; ++key) {
    memset(b.dk.data + batch * b.dk.batch + group * b.dk.head + key * b.dk.token, 0, sizeof(float) * a.width);
    memset(b.dv.data + batch * b.dv.batch + group * b.dv.head + key * b.dv.token, 0, sizeof(float) * a.width);
  }
  for (int64_t head = leader.head; head < leader.head + shared; ++head)
    for (int64_t first = 0; first < a.queries; first += a.block)
      backward_block(b, head_of(a, batch, head), w, first);
}

}  // namespace

int64_t attention_backward_scratch(const AttentionBackward& b, int64_t, int64_t) { return backward_space(b).size; }

void attention_backward(const AttentionBackward& b, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) backward_group(b, item / b.forward.groups, item % b.forward.groups);
}

}  // namespace fuseline::FUSELINE_ISA
