// How an operator is written: a Definition (name, ports, attributes) and a compute function.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "contract.h"
#include "ort_abi.h"
#include "parallel.h"

namespace fuseline {

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

// One run of one node, whose inputs have been found to fit the operator's contract.
class Context {
 public:
  Context(OrtKernelContext* raw, std::vector<Tensor> inputs, const std::vector<double>& attributes);

  size_t input_count() const { return inputs_.size(); }
  const Tensor& input(size_t index) const { return inputs_[index]; }
  // nullptr where the graph does not want the output, or it has no elements.
  float* output(size_t index, const Shape& shape) const { return static_cast<float*>(output_data(index, shape)); }
  void* output_data(size_t index, const Shape& shape) const;
  double attribute(size_t index) const { return attributes_[index]; }
  const Parallel& parallel() const { return parallel_; }

 private:
  OrtKernelContext* raw_;
  std::vector<Tensor> inputs_;
  const std::vector<double>& attributes_;
  size_t output_count_ = 0;
  Parallel parallel_;
};

// An input or an output; contract.h says how its shape is written. No input is ever left out of a node.
struct Port {
  const char* name;
  const char* shape;
  abi::ElementType type = abi::kFloat;
  abi::Characteristic characteristic = abi::kRequired;
};

struct Attribute {
  const char* name;
  bool integer;
  double fallback;
};

// Which input's memory the first output may take over, if nobody reads that input afterwards: the operator reads every
// element there before it writes it. ONNX Runtime asks a plain function that knows no operator, hence one for each input.
struct InPlace {
  int input = -1;
  size_t (*pairs)(int** inputs, int** outputs) = nullptr;
};

template <int Input>
InPlace in_place() {
  return {Input, [](int** inputs, int** outputs) -> size_t {
            *inputs = new int[1]{Input};
            *outputs = new int[1]{0};
            return 1;
          }};
}

struct Definition {
  const char* name;
  std::vector<Port> inputs, outputs;
  std::vector<Attribute> attributes;
  void (*compute)(const Context&);
  InPlace in_place = {};
};

inline Port optional(const char* name, const char* shape, abi::ElementType type = abi::kFloat) {
  return {name, shape, type, abi::kOptional};
}

// Every file in ops/ gives its definitions through one function of this form; register.cc lists them.
using Definitions = std::vector<Definition>;

// All of them, in one list.
const Definitions& all_definitions();

OrtStatus* register_all(OrtSessionOptions* options, const abi::ApiBase* base);

// The runtime's functions; nullptr until a session was made that knows the operators.
abi::Api runtime();

}  // namespace fuseline
