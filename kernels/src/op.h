// How an operator is written: a Definition (name, ports, attributes, shapes) and a compute function.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort_abi.h"
#include "parallel.h"

namespace fuseline {

using Shape = std::vector<int64_t>;

int64_t elements(const Shape& shape);
std::string text(const Shape& shape);

struct Tensor {
  void* data = nullptr;
  Shape shape{0};

  // A tensor without elements stands for an absent one: ONNX Runtime's shape inference and its gradient
  // builder both fail on inputs that are left out.
  explicit operator bool() const { return size() > 0; }
  float* floats() const { return size() > 0 ? static_cast<float*>(data) : nullptr; }
  const int64_t* ints() const { return static_cast<const int64_t*>(data); }
  int64_t size() const { return elements(shape); }
  int64_t last() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return last() == 0 ? 0 : size() / last(); }
};

// Raised for inputs an operator cannot take; ONNX Runtime shows the text with the node's name.
struct InvalidInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool condition, const std::string& message);

// One run of one node.
class Context {
 public:
  Context(OrtKernelContext* raw, const std::vector<double>& attributes);

  size_t input_count() const { return input_count_; }
  Tensor input(size_t index) const;
  // nullptr where the graph does not want the output, or it has no elements.
  float* output(size_t index, const Shape& shape) const { return static_cast<float*>(output_data(index, shape)); }
  void* output_data(size_t index, const Shape& shape) const;
  double attribute(size_t index) const { return attributes_[index]; }
  const Parallel& parallel() const { return parallel_; }

 private:
  OrtKernelContext* raw_;
  const std::vector<double>& attributes_;
  size_t input_count_ = 0;
  size_t output_count_ = 0;
  Parallel parallel_;
};

// A dimension during shape inference: a size, or -1 with a symbol that may be empty.
struct Dimension {
  int64_t size = -1;
  std::string symbol;
};
using Dimensions = std::vector<Dimension>;
using InputShapes = std::vector<Dimensions>;
// The shape of an output from the shapes of the inputs, where they are known.
using ShapeRule = std::function<std::optional<Dimensions>(const InputShapes&)>;

ShapeRule same_as(size_t input);
ShapeRule without_last(size_t input);
ShapeRule last_of(size_t input);
ShapeRule fixed(int64_t size);
ShapeRule scalar();

struct Input {
  abi::ElementType type = abi::kFloat;
  abi::Characteristic characteristic = abi::kRequired;
};

struct Output {
  ShapeRule shape;
  abi::ElementType type = abi::kFloat;
  abi::Characteristic characteristic = abi::kRequired;
};

struct Attribute {
  const char* name;
  bool integer;
  double fallback;
};

struct Definition {
  const char* name;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Attribute> attributes;
  void (*compute)(const Context&);
};

constexpr Input kIntInput{abi::kInt64, abi::kRequired};

inline Output optional(ShapeRule shape) { return {std::move(shape), abi::kFloat, abi::kOptional}; }

// Every file in ops/ gives its definitions through one function of this form; register.cc lists them.
using Definitions = std::vector<Definition>;

OrtStatus* register_all(OrtSessionOptions* options, const abi::ApiBase* base, const Definitions& definitions);

}  // namespace fuseline
