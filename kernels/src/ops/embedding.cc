// Rows of a table by index, and the gradient of the table.
#include <cstring>

#include "compute/kernels.h"
#include "ops/all.h"

namespace fuseline {
namespace {

constexpr int64_t kSmallVocabulary = 2048;  // below, few rows get everything: split the columns instead
constexpr int64_t kColumnBlock = 128;

void require_ids(const Tensor& ids, int64_t vocabulary) {
  const int64_t* values = static_cast<const int64_t*>(ids.data);
  for (int64_t i = 0; i < ids.size(); ++i)
    if (values[i] < -vocabulary || values[i] >= vocabulary)
      require(false, "index " + std::to_string(values[i]) + " at position " + std::to_string(i) + " is outside a table of " +
                         std::to_string(vocabulary) + " rows");
}

void embedding(const Context& context) {
  const Tensor weight = context.input(0), ids = context.input(1);
  const int64_t vocabulary = weight.shape[0], width = weight.shape[1];
  require_ids(ids, vocabulary);
  Shape shape = ids.shape;
  shape.push_back(width);
  float* y = context.output(0, shape);
  if (void* state = context.output_data(1, {1}))
    *static_cast<int64_t*>(state) = static_cast<int64_t>(context.attribute(0));
  if (y == nullptr) return;
  for_range(context.parallel(), ids.size(), width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = ids.ints()[i] < 0 ? ids.ints()[i] + vocabulary : ids.ints()[i];
      std::memcpy(y + i * width, weight.floats() + row * width, sizeof(float) * width);
    }
  });
}

void embedding_gradient(const Context& context) {
  const Tensor dy = context.input(0), ids = context.input(1), weight = context.input(2);
  const int64_t vocabulary = weight.shape[0], width = weight.shape[1];
  require_ids(ids, vocabulary);
  EmbeddingBackward shared{dy.floats(), ids.ints(), context.output(0, weight.shape), ids.size(), width, 0, width,
                           vocabulary, *context.input(3).ints()};
  if (shared.dweight == nullptr) return;
  if (vocabulary > kSmallVocabulary) {
    for_range(context.parallel(), vocabulary, width,
              [&](int64_t begin, int64_t end) { routines().embedding_backward(shared, begin, end); });
    return;
  }
  const int64_t blocks = (width + kColumnBlock - 1) / kColumnBlock;
  for_range(context.parallel(), blocks, ids.size() * kColumnBlock, [&](int64_t begin, int64_t end) {
    EmbeddingBackward arguments = shared;
    arguments.first = begin * kColumnBlock;
    arguments.last = std::min(end * kColumnBlock, width);
    routines().embedding_backward(arguments, 0, vocabulary);
  });
}

}  // namespace

Definitions embedding_definitions() {
  const Port weight{"weight", "V,D"}, ids{"ids", "*R", abi::kInt64};
  return {
      {"FusedEmbedding",
       {weight, ids},
       {{"y", "*R,D"}, optional("state", "1", abi::kInt64)},
       {{"padding_idx", true, -1}},
       embedding},
      {"FusedEmbeddingGrad",
       {{"dy", "*R,D"}, ids, weight, {"state", "1", abi::kInt64}},
       {{"dweight", "V,D"}},
       {},
       embedding_gradient},
  };
}

}  // namespace fuseline
