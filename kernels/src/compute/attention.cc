// Attention one block of queries at a time: the scores of a block live in scratch memory, never the whole matrix.
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/math.h"
#include "compute/random.h"

namespace fuseline::FUSELINE_ISA {
namespace {

// One head of one sequence. Its arguments are those of all sequences, with the numbers of its own queries and keys.
struct Head {
  Attention a;
  int64_t batch, head, group;  // group: the key/value head it shares
  int64_t query, key;          // the first row of each
  const int64_t *query_places, *key_places;
  bool scattered;  // keys are missing between others, so that what is added to the scores must be gathered
};

int64_t first_row(const Present& present, int64_t batch, int64_t count) {
  return present.offsets == nullptr ? batch * count : present.offsets[batch];
}

Head head_of(const Attention& a, int64_t batch, int64_t head) {
  Head h{a, batch, head, head / (a.heads / a.groups), first_row(a.present_queries, batch, a.queries),
         first_row(a.present_keys, batch, a.keys), nullptr, nullptr, false};
  if (const Present& present = a.present_queries; present.offsets != nullptr) {
    h.a.queries = present.offsets[batch + 1] - h.query;
    h.query_places = present.places + h.query;
  }
  if (const Present& present = a.present_keys; present.offsets != nullptr) {
    h.a.keys = present.offsets[batch + 1] - h.key;
    h.key_places = present.places + h.key;
    h.scattered = h.a.keys > 0 && h.key_places[h.a.keys - 1] - h.key_places[0] != h.a.keys - 1;
  }
  return h;
}

float* at(const Strided& tensor, int64_t row, int64_t head) { return tensor.data + row * tensor.token + head * tensor.head; }

int64_t padded(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// One panel more than needed: rows a power of two apart would share a few lines of the first cache.
int64_t score_stride(const Attention& a) { return padded(a.keys) + kPanel; }

FL_INLINE int64_t place_of(const int64_t* places, int64_t index) { return places == nullptr ? index : places[index]; }

// The keys that a query may see.
FL_INLINE int64_t visible(const Head& h, int64_t query) {
  const Attention& a = h.a;
  if (!a.causal) return a.keys;
  const int64_t queries = h.query_places == nullptr ? a.queries : a.present_queries.length;
  const int64_t keys = h.key_places == nullptr ? a.keys : a.present_keys.length;
  const int64_t limit = place_of(h.query_places, query) + keys - queries + 1;
  if (h.key_places == nullptr) return limit < 0 ? 0 : min(limit, a.keys);
  int64_t count = 0;
  for (int64_t step = a.keys; step > 0; step /= 2)
    while (count + step <= a.keys && h.key_places[count + step - 1] < limit) count += step;
  return count;
}

// Where a row of an addition begins; one that the keys are not scattered over.
const float* row_of(const Additive& additive, const Head& h, int64_t query) {
  if (additive.data == nullptr) return nullptr;
  const int64_t first = h.key_places == nullptr || h.scattered || h.a.keys == 0 ? 0 : h.key_places[0];
  return additive.data + h.batch * additive.batch + h.head * additive.head +
         place_of(h.query_places, query) * additive.query + first * additive.key;
}

template <class Lanes>
FL_INLINE Vec additive_at(const float* row, int64_t stride, int64_t key, Lanes lanes) {
  return stride == 0 ? set(row[0]) : load(row + key, lanes);
}

// The additions to one row of scores.
struct Terms {
  const float *mask, *bias;
};

const float* gathered(const Additive& additive, const Head& h, int64_t query, float* line) {
  const float* row = row_of(additive, h, query);
  if (row == nullptr || !h.scattered || additive.key == 0) return row;
  for (int64_t i = 0; i < h.a.keys; ++i) line[i] = row[h.key_places[i]];
  return line;
}

// `lines` has room for two, where keys are scattered.
Terms terms_of(const Head& h, int64_t query, float* lines) {
  return {gathered(h.a.mask, h, query, lines), gathered(h.a.bias, h, query, lines + padded(h.a.keys))};
}

int64_t line_count(const Attention& a) { return a.present_keys.offsets == nullptr ? 0 : 3; }

// scale·score + mask + bias.
template <class Lanes>
FL_INLINE Vec score_at(const Attention& a, const Terms& terms, const float* products, int64_t i, Lanes lanes) {
  Vec value = load(products + i, lanes) * a.scale;
  if (terms.mask != nullptr) value += additive_at(terms.mask, a.mask.key, i, lanes);
  if (terms.bias != nullptr) value += additive_at(terms.bias, a.bias.key, i, lanes);
  return value;
}

// The number of a row of scores among all.
int64_t number_of(const Head& h, int64_t query) {
  const Attention& a = h.a;
  if (a.present_queries.offsets == nullptr) return (h.batch * a.heads + h.head) * a.queries + query;
  return h.head * a.present_queries.rows + h.query + query;
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
void exponential_row(const Head& h, int64_t query, int64_t count, float* scores, float* lines) {
  const Attention& a = h.a;
  const int64_t number = number_of(h, query);
  float* statistics = a.statistics + 2 * number;
  const Terms terms = terms_of(h, query, lines);
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
  const uint64_t key = row_key(a.dropout.key, static_cast<uint64_t>(number));
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
  float *keys, *values, *scores, *lines;
  int64_t size;
};

ForwardSpace forward_space(const Attention& a) {
  Layout layout{a.scratch};
  ForwardSpace space;
  space.keys = layout.take(padded(a.keys) * a.width);
  space.values = layout.take(padded(a.width) * a.keys);
  space.scores = layout.take(a.block * score_stride(a));
  space.lines = layout.take(line_count(a) * padded(a.keys));
  space.size = layout.size;
  return space;
}

void forward_head(const Head& h) {
  const Attention& a = h.a;
  const int64_t width = a.width, stride = score_stride(a);
  const auto [keys, values, scores, lines, size] = forward_space(a);
  pack_transposed(at(a.k, h.key, h.group), a.k.token, width, a.keys, keys);
  pack(at(a.v, h.key, h.group), a.v.token, a.keys, width, values);
  const float* q = at(a.q, h.query, h.head);
  float* y = at(a.y, h.query, h.head);
  const float* statistics = a.statistics + 2 * number_of(h, 0);
  for (int64_t first = 0; first < a.queries; first += a.block) {
    const int64_t rows = min(a.block, a.queries - first), seen = visible(h, first + rows - 1);
    multiply({rows, padded(seen), width, width}, {q + first * a.q.token, a.q.token, 1}, keys, scores, stride, false);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t count = visible(h, first + row);
      float* line = scores + row * stride;
      exponential_row(h, first + row, count, line, lines);
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
  for (int64_t item = begin; item < end; ++item) forward_head(head_of(a, item / a.heads, item % a.heads));
}

namespace {

struct BackwardSpace {
  float *keys, *values, *plain_keys, *queries, *dy, *scores, *slopes, *lines;
  int64_t size;
};

BackwardSpace backward_space(const Attention& a) {
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
  space.lines = layout.take(line_count(a) * padded(a.keys));
  space.size = layout.size;
  return space;
}

// The bias's share of one row, added to where it belongs. Where keys are scattered it is collected first.
struct BiasSlopes {
  float *row, *line;  // null: there is none; not scattered

  BiasSlopes(const AttentionBackward& b, const Head& h, int64_t query, float* spare) : row(nullptr), line(nullptr) {
    if (b.dbias == nullptr) return;
    row = b.dbias + (row_of(h.a.bias, h, query) - h.a.bias.data);
    if (h.scattered && h.a.bias.key != 0) line = spare;
  }
  float* target() const { return line != nullptr ? line : row; }
  void clear(int64_t count) const {
    if (line != nullptr) memset(line, 0, sizeof(float) * count);
  }
  void scatter(const Head& h, int64_t count) const {
    for (int64_t i = 0; line != nullptr && i < count; ++i) row[h.key_places[i]] += line[i];
  }
};

// From scores and dP of one row: scores ← P·dropout (for dV), slopes ← dS, the bias's share added on the way.
void slope_row(const AttentionBackward& b, const Head& h, int64_t query, int64_t count, float* scores, float* slopes,
               const float* dy, const float* y, float* lines) {
  const Attention& a = h.a;
  const int64_t number = number_of(h, query);
  const float top = a.statistics[2 * number], inverse = a.statistics[2 * number + 1];
  const Terms terms = terms_of(h, query, lines);
  Sum product;
  sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
    product.add(load(dy + i, lanes) * load(y + i, lanes), slot);
  });
  const float delta = product.total();
  const uint64_t key = row_key(a.dropout.key, static_cast<uint64_t>(number));
  if (replaced(a, terms, count, top)) {
    sweep(count, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      const Vec factor = a.dropout.threshold != 0 ? dropout_factor(a.dropout, key, i) : set(1.0f);
      store(scores + i, factor * inverse, lanes);
      store(slopes + i, set(0.0f), lanes);
    });
    return;
  }
  const BiasSlopes shares(b, h, query, lines + 2 * padded(a.keys));
  shares.clear(count);
  float* dbias = shares.target();
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
  shares.scatter(h, count);
}

void backward_block(const AttentionBackward& b, const Head& h, const BackwardSpace& w, int64_t first) {
  const Attention& a = h.a;
  const int64_t rows = min(a.block, a.queries - first), seen = visible(h, first + rows - 1);
  const int64_t stride = score_stride(a), width = a.width;
  const float* q = at(a.q, h.query + first, h.head);
  const float* dy = at(b.dy, h.query + first, h.head);
  const float* y = at(a.y, h.query + first, h.head);
  multiply({rows, padded(seen), width, width}, {q, a.q.token, 1}, w.keys, w.scores, stride, false);
  multiply({rows, padded(seen), width, width}, {dy, b.dy.token, 1}, w.values, w.slopes, stride, false);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t count = visible(h, first + row);
    float *scores = w.scores + row * stride, *slopes = w.slopes + row * stride;
    slope_row(b, h, first + row, count, scores, slopes, dy + row * b.dy.token, y + row * a.y.token, w.lines);
    memset(scores + count, 0, sizeof(float) * (seen - count));
    memset(slopes + count, 0, sizeof(float) * (seen - count));
  }
  pack(q, a.q.token, rows, width, w.queries);
  pack(dy, b.dy.token, rows, width, w.dy);
  float *dk = at(b.dk, h.key, h.group), *dv = at(b.dv, h.key, h.group), *dq = at(b.dq, h.query + first, h.head);
  multiply({seen, width, rows, rows}, {w.scores, 1, stride}, w.dy, dv, b.dv.token, true);
  multiply({seen, width, rows, rows}, {w.slopes, 1, stride}, w.queries, dk, b.dk.token, true);
  multiply({rows, width, seen, a.keys}, {w.slopes, stride, 1}, w.plain_keys, dq, b.dq.token, false);
}

void backward_group(const AttentionBackward& b, int64_t batch, int64_t group) {
  const int64_t shared = b.forward.heads / b.forward.groups;
  const Head leader = head_of(b.forward, batch, group * shared);
  const Attention& a = leader.a;
  const BackwardSpace w = backward_space(a);
  const float *k = at(a.k, leader.key, group), *v = at(a.v, leader.key, group);
  pack_transposed(k, a.k.token, a.width, a.keys, w.keys);
  pack_transposed(v, a.v.token, a.width, a.keys, w.values);
  pack(k, a.k.token, a.keys, a.width, w.plain_keys);
  // Blocks of queries and heads of the group add up here; a causal block reaches only the keys it sees.
  for (int64_t key = leader.key; key < leader.key + a.keys; ++key) {
    memset(at(b.dk, key, group), 0, sizeof(float) * a.width);
    memset(at(b.dv, key, group), 0, sizeof(float) * a.width);
  }
  for (int64_t head = leader.head; head < leader.head + shared; ++head)
    for (int64_t first = 0; first < a.queries; first += a.block)
      backward_block(b, head_of(b.forward, batch, head), w, first);
}

}  // namespace

int64_t attention_backward_scratch(const AttentionBackward& b, int64_t, int64_t) { return backward_space(b.forward).size; }

void attention_backward(const AttentionBackward& b, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) backward_group(b, item / b.forward.groups, item % b.forward.groups);
}

}  // namespace fuseline::FUSELINE_ISA
