// Small routines along rows: softmax, dropout, rotary, SwiGLU, embedding gradients.
#include "compute/kernels.h"
#include "compute/math.h"
#include "compute/random.h"

namespace fuseline::FUSELINE_ISA {

void softmax_forward(const SoftmaxForward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.width;
    float* y = a.y + row * a.width;
    Vec tops[4];
    for (Vec& top : tops) top = set(-__builtin_inff());
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      tops[slot] = max(tops[slot], keep(load(x + i, lanes), -__builtin_inff(), lanes));
    });
    const float top = largest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
    Sum total;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      const Vec value = keep(exp(load(x + i, lanes) - top), 0, lanes);
      total.add(value, slot);
      store(y + i, value, lanes);
    });
    const float scale = 1.0f / total.total();
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA { store(y + i, load(y + i, lanes) * scale, lanes); });
  }
}

void softmax_backward(const SoftmaxBackward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t start = row * a.width;
    Sum product;
    sweep(a.width, [&](int64_t i, auto lanes, int slot) FL_LAMBDA {
      product.add(load(a.dy + start + i, lanes) * load(a.y + start + i, lanes), slot);
    });
    const float mean = product.total();
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      store(a.dx + start + i, load(a.y + start + i, lanes) * (load(a.dy + start + i, lanes) - mean), lanes);
    });
  }
}

void dropout_add_forward(const DropoutAddForward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t start = row * a.width;
    const uint64_t key = row_key(a.dropout.key, static_cast<uint64_t>(row));
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      Vec value = load(a.x + start + i, lanes);
      if (a.bias != nullptr) value += load(a.bias + i, lanes);
      if (a.dropout.threshold != 0) value *= dropout_factor(a.dropout, key, i);
      if (a.residual != nullptr) value += load(a.residual + start + i, lanes);
      store(a.y + start + i, value, lanes);
    });
  }
}

void dropout_add_backward(const DropoutAddBackward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t start = row * a.width;
    const uint64_t key = row_key(a.dropout.key, static_cast<uint64_t>(row));
    sweep(a.width, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      Vec value = load(a.dy + start + i, lanes);
      if (a.dropout.threshold != 0) value *= dropout_factor(a.dropout, key, i);
      if (a.dx != nullptr) store(a.dx + start + i, value, lanes);
      if (a.dbias != nullptr) store(a.dbias + i, load(a.dbias + i, lanes) + value, lanes);
    });
  }
}

// With c, s of the first half and C, S of the second:  y₁ = x₁c − x₂s,  y₂ = x₂C + x₁S; transposed:
// y₁ = x₁c + x₂S,  y₂ = x₂C − x₁s.
void rotary(const Rotary& a, int64_t begin, int64_t end) {
  const int64_t half = a.rotated / 2;
  for (int64_t token = begin; token < end; ++token) {
    const float* cos = a.cos + token % a.table_tokens * a.rotated;
    const float* sin = a.sin + token % a.table_tokens * a.rotated;
    for (int64_t head = 0; head < a.heads; ++head) {
      const float* x = a.x + (token * a.heads + head) * a.width;
      float* y = a.y + (token * a.heads + head) * a.width;
      sweep(half, [&](int64_t i, auto lanes, int) FL_LAMBDA {
        const Vec low = load(x + i, lanes), high = load(x + half + i, lanes);
        const Vec sin_low = load(sin + i, lanes), sin_high = load(sin + half + i, lanes);
        const Vec from_high = a.inverse ? -sin_high : sin_low, from_low = a.inverse ? -sin_low : sin_high;
        store(y + i, low * load(cos + i, lanes) - high * from_high, lanes);
        store(y + half + i, high * load(cos + half + i, lanes) + low * from_low, lanes);
      });
      memcpy(y + a.rotated, x + a.rotated, sizeof(float) * (a.width - a.rotated));
    }
  }
}

void swiglu_forward(const SwiGluForward& a, int64_t begin, int64_t end) {
  sweep(end - begin, [&](int64_t offset, auto lanes, int) FL_LAMBDA {
    const int64_t i = begin + offset;
    const Vec gate = load(a.gate + i, lanes);
    store(a.y + i, gate * sigmoid(gate) * load(a.up + i, lanes), lanes);
  });
}

void swiglu_backward(const SwiGluBackward& a, int64_t begin, int64_t end) {
  sweep(end - begin, [&](int64_t offset, auto lanes, int) FL_LAMBDA {
    const int64_t i = begin + offset;
    const Vec gate = load(a.gate + i, lanes), dy = load(a.dy + i, lanes), s = sigmoid(gate);
    if (a.dgate != nullptr)
      store(a.dgate + i, dy * load(a.up + i, lanes) * s * (1.0f + gate * (1.0f - s)), lanes);
    if (a.dup != nullptr) store(a.dup + i, dy * gate * s, lanes);
  });
}

void embedding_backward(const EmbeddingBackward& a, int64_t begin, int64_t end) {
  const int64_t columns = a.last - a.first;
  if (columns == a.width)
    memset(a.dweight + begin * a.width, 0, sizeof(float) * (end - begin) * a.width);
  else
    for (int64_t row = begin; row < end; ++row)
      memset(a.dweight + row * a.width + a.first, 0, sizeof(float) * columns);
  for (int64_t item = 0; item < a.count; ++item) {
    const int64_t row = a.ids[item] < 0 ? a.ids[item] + a.vocabulary : a.ids[item];
    if (row < begin || row >= end || row == a.padding) continue;
    const float* dy = a.dy + item * a.width + a.first;
    float* sum = a.dweight + row * a.width + a.first;
    sweep(columns, [&](int64_t i, auto lanes, int) FL_LAMBDA {
      store(sum + i, load(sum + i, lanes) + load(dy + i, lanes), lanes);
    });
  }
}

}  // namespace fuseline::FUSELINE_ISA
