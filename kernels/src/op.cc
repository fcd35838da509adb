#include "op.h"

#include <deque>
#include <memory>
#include <mutex>

namespace fuseline {
namespace {

abi::Api g_api = nullptr;  // the same table for every session of a process

template <size_t Index, class Result, class... Arguments>
Result call(abi::Slot<Index, Result(Arguments...)>, std::common_type_t<Arguments>... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(g_api[Index])(arguments...);
}

void check(OrtStatus* status, const char* what) {
  if (status == nullptr) return;
  const std::string reason = call(abi::GetErrorMessage{}, status);
  call(abi::ReleaseStatus{}, status);
  throw std::runtime_error(std::string("ONNX Runtime refused: ") + what + ": " + reason);
}

bool succeeded(OrtStatus* status) {
  if (status == nullptr) return true;
  call(abi::ReleaseStatus{}, status);
  return false;
}

// Runs `body`, turning what it throws into a status: no exception may cross the C boundary.
template <class Body>
OrtStatus* guarded(const char* name, const Body& body) noexcept {
  int code = abi::kFail;
  try {
    try {
      body();
      return nullptr;
    } catch (const InvalidInput& error) {
      code = abi::kInvalidArgument;
      return call(abi::CreateStatus{}, code, (std::string("fuseline.") + name + ": " + error.what()).c_str());
    } catch (const std::exception& error) {
      return call(abi::CreateStatus{}, code, (std::string("fuseline.") + name + ": " + error.what()).c_str());
    }
  } catch (...) {
    return call(abi::CreateStatus{}, code, "fuseline: out of memory");
  }
}

struct Operator : abi::CustomOp {
  Definition definition;
};

const Definition& definition(const abi::CustomOp* op) { return static_cast<const Operator*>(op)->definition; }

struct Kernel {
  const Definition* definition;
  std::vector<double> attributes;
};

double read_attribute(const OrtKernelInfo* info, const Attribute& attribute) {
  if (attribute.integer) {
    int64_t value = 0;
    return succeeded(call(abi::GetAttributeInt{}, info, attribute.name, &value)) ? static_cast<double>(value)
                                                                                 : attribute.fallback;
  }
  float value = 0;
  return succeeded(call(abi::GetAttributeFloat{}, info, attribute.name, &value)) ? value : attribute.fallback;
}

OrtStatus* create_kernel(const abi::CustomOp* op, abi::Api, const OrtKernelInfo* info, void** kernel) {
  return guarded(definition(op).name, [&] {
    auto created = std::make_unique<Kernel>(Kernel{&definition(op), {}});
    for (const Attribute& attribute : definition(op).attributes)
      created->attributes.push_back(read_attribute(info, attribute));
    *kernel = created.release();
  });
}

OrtStatus* compute(void* opaque, OrtKernelContext* raw) {
  const auto* kernel = static_cast<const Kernel*>(opaque);
  return guarded(kernel->definition->name,
                 [&] { kernel->definition->compute(Context(raw, kernel->attributes)); });
}

Dimensions read_dimensions(const OrtShapeInferContext* context, size_t index) {
  OrtTensorTypeAndShapeInfo* info = nullptr;  // owned by the context
  if (!succeeded(call(abi::InferGetInput{}, context, index, &info)) || info == nullptr) return {};
  size_t rank = 0;
  check(call(abi::GetDimensionsCount{}, info, &rank), "rank");
  Shape sizes(rank);
  std::vector<const char*> symbols(rank, nullptr);
  check(call(abi::GetDimensions{}, info, sizes.data(), rank), "dimensions");
  check(call(abi::GetSymbolicDimensions{}, info, symbols.data(), rank), "symbols");
  Dimensions result;
  for (size_t axis = 0; axis < rank; ++axis)
    result.push_back({sizes[axis], symbols[axis] == nullptr ? "" : symbols[axis]});
  return result;
}

void write_dimensions(const OrtShapeInferContext* context, size_t index, const Output& output,
                      const Dimensions& dimensions) {
  Shape sizes;
  std::vector<const char*> symbols;
  for (const Dimension& dimension : dimensions) {
    // The runtime would take every size that is unknown and has no name for the same one, and reuse buffers by it.
    if (dimension.size < 0 && dimension.symbol.empty()) return;
    sizes.push_back(dimension.size);
    symbols.push_back(dimension.symbol.c_str());
  }
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(call(abi::CreateTensorTypeAndShapeInfo{}, &info), "shape");
  // Without the symbols the runtime takes the rank for zero.
  const bool ok = succeeded(call(abi::SetTensorElementType{}, info, output.type)) &&
                  succeeded(call(abi::SetDimensions{}, info, sizes.data(), sizes.size())) &&
                  succeeded(call(abi::SetSymbolicDimensions{}, info, symbols.data(), symbols.size()));
  if (ok) succeeded(call(abi::InferSetOutput{}, context, index, info));
  call(abi::ReleaseTensorTypeAndShapeInfo{}, info);
}

OrtStatus* infer_shapes(const abi::CustomOp* op, OrtShapeInferContext* context) {
  return guarded(definition(op).name, [&] {
    size_t count = 0;
    check(call(abi::InferGetInputCount{}, context, &count), "input count");
    InputShapes inputs;
    for (size_t index = 0; index < count; ++index) inputs.push_back(read_dimensions(context, index));
    inputs.resize(std::max(count, definition(op).inputs.size()));
    const auto& outputs = definition(op).outputs;
    for (size_t index = 0; index < outputs.size(); ++index) {
      // The runtime does not tell how many outputs the node has, and aborts on one too many: beyond the first,
      // only those that no node may leave out.
      if (index > 0 && outputs[index].characteristic != abi::kRequired) continue;
      const std::optional<Dimensions> dimensions = outputs[index].shape(inputs);
      if (dimensions) write_dimensions(context, index, outputs[index], *dimensions);
    }
  });
}

void fill_table(Operator& op) {
  op.version = abi::kApiVersion;
  op.GetName = [](const abi::CustomOp* self) { return definition(self).name; };
  op.GetExecutionProviderType = [](const abi::CustomOp*) -> const char* { return nullptr; };
  op.GetInputType = [](const abi::CustomOp* self, size_t i) -> int { return definition(self).inputs[i].type; };
  op.GetInputTypeCount = [](const abi::CustomOp* self) { return definition(self).inputs.size(); };
  op.GetOutputType = [](const abi::CustomOp* self, size_t i) -> int { return definition(self).outputs[i].type; };
  op.GetOutputTypeCount = [](const abi::CustomOp* self) { return definition(self).outputs.size(); };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  op.GetInputCharacteristic = [](const abi::CustomOp* self, size_t i) -> int {
    return definition(self).inputs[i].characteristic;
  };
  op.GetOutputCharacteristic = [](const abi::CustomOp* self, size_t i) -> int {
    return definition(self).outputs[i].characteristic;
  };
  op.GetInputMemoryType = [](const abi::CustomOp*, size_t) { return 0; };
  op.GetVariadicInputMinArity = [](const abi::CustomOp*) { return 1; };
  op.GetVariadicInputHomogeneity = [](const abi::CustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = [](const abi::CustomOp*) { return 1; };
  op.GetVariadicOutputHomogeneity = [](const abi::CustomOp*) { return 1; };
  op.CreateKernelV2 = create_kernel;
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_shapes;
  op.GetStartVersion = [](const abi::CustomOp*) { return 1; };
  op.GetEndVersion = [](const abi::CustomOp*) { return INT32_MAX; };
}

}  // namespace

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string text(const Shape& shape) {
  std::string result = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) result += (axis ? "," : "") + std::to_string(shape[axis]);
  return result + "]";
}

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidInput(message);
}

Context::Context(OrtKernelContext* raw, const std::vector<double>& attributes) : raw_(raw), attributes_(attributes) {
  check(call(abi::GetInputCount{}, raw, &input_count_), "input count");
  check(call(abi::GetOutputCount{}, raw, &output_count_), "output count");
  parallel_ = [raw](size_t count, const Task& task) {
    const auto step = [](void* data, size_t index) { (*static_cast<const Task*>(data))(index); };
    // As many batches as tasks: whoever is free takes the next. Fewer would be dealt out in advance, and a thread that
    // wakes late would hold up the others.
    check(call(abi::ParallelFor{}, raw, step, count, count, const_cast<Task*>(&task)), "parallel for");
  };
}

Tensor Context::input(size_t index) const {
  Tensor tensor;
  const OrtValue* value = nullptr;
  if (index >= input_count_) return tensor;
  check(call(abi::GetInput{}, raw_, index, &value), "input");
  if (value == nullptr) return tensor;
  check(call(abi::GetTensorMutableData{}, const_cast<OrtValue*>(value), &tensor.data), "input data");
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(call(abi::GetTensorTypeAndShape{}, value, &info), "input shape");
  size_t rank = 0;
  check(call(abi::GetDimensionsCount{}, info, &rank), "rank");
  tensor.shape.resize(rank);
  check(call(abi::GetDimensions{}, info, tensor.shape.data(), rank), "dimensions");
  call(abi::ReleaseTensorTypeAndShapeInfo{}, info);
  return tensor;
}

void* Context::output_data(size_t index, const Shape& shape) const {
  if (index >= output_count_) return nullptr;
  OrtValue* value = nullptr;
  check(call(abi::GetOutput{}, raw_, index, shape.data(), shape.size(), &value), "output");
  if (value == nullptr || elements(shape) == 0) return nullptr;
  void* data = nullptr;
  check(call(abi::GetTensorMutableData{}, value, &data), "output data");
  return data;
}

// The runtime gives an unknown shape as one of rank zero, so an empty one says nothing.
ShapeRule same_as(size_t input) {
  return [input](const InputShapes& shapes) -> std::optional<Dimensions> {
    if (shapes[input].empty()) return std::nullopt;
    return shapes[input];
  };
}

ShapeRule without_last(size_t input) {
  return [input](const InputShapes& shapes) -> std::optional<Dimensions> {
    if (shapes[input].empty()) return std::nullopt;
    return Dimensions(shapes[input].begin(), shapes[input].end() - 1);
  };
}

ShapeRule last_of(size_t input) {
  return [input](const InputShapes& shapes) -> std::optional<Dimensions> {
    if (shapes[input].empty()) return std::nullopt;
    return Dimensions{shapes[input].back()};
  };
}

ShapeRule fixed(int64_t size) {
  return [size](const InputShapes&) { return Dimensions{{size, ""}}; };
}

ShapeRule scalar() {
  return [](const InputShapes&) { return Dimensions{}; };
}

OrtStatus* register_all(OrtSessionOptions* options, const abi::ApiBase* base, const Definitions& definitions) {
  static std::mutex mutex;
  static std::deque<Operator> operators;  // sessions keep pointers to these for as long as they live
  static OrtCustomOpDomain* domain = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (domain == nullptr) {
    g_api = base->GetApi(abi::kApiVersion);
    if (OrtStatus* status = call(abi::CreateCustomOpDomain{}, "fuseline", &domain)) return status;
    for (const Definition& definition : definitions) {
      Operator& op = operators.emplace_back();
      op.definition = definition;
      fill_table(op);
      if (OrtStatus* status = call(abi::CustomOpDomainAdd{}, domain, &op)) return status;
    }
  }
  return call(abi::AddCustomOpDomain{}, options, domain);
}

}  // namespace fuseline
