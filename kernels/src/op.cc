#include "op.h"

#include <deque>
#include <memory>
#include <mutex>

#include "threads.h"

namespace fuseline {
namespace {

abi::Api g_api = nullptr;  // the same table for every session of a process

template <size_t Index, class Result, class... Arguments>
Result call(abi::Slot<Index, Result(Arguments...)>, std::common_type_t<Arguments>... arguments) {
  return abi::call(g_api, abi::Slot<Index, Result(Arguments...)>{}, arguments...);
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

std::vector<Pattern> patterns(const std::vector<Port>& ports) {
  std::vector<Pattern> result;
  for (const Port& port : ports) result.emplace_back(port.shape);
  return result;
}

struct Operator : abi::CustomOp {
  explicit Operator(const Definition& what)
      : abi::CustomOp{}, definition(what), inputs(patterns(what.inputs)), outputs(patterns(what.outputs)) {}
  Definition definition;
  std::vector<Pattern> inputs, outputs;
};

const Operator& self(const abi::CustomOp* op) { return *static_cast<const Operator*>(op); }
const Definition& definition(const abi::CustomOp* op) { return self(op).definition; }

struct Kernel {
  const Operator* op;
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
    auto created = std::make_unique<Kernel>(Kernel{&self(op), {}});
    for (const Attribute& attribute : definition(op).attributes)
      created->attributes.push_back(read_attribute(info, attribute));
    *kernel = created.release();
  });
}

Tensor read_input(const OrtKernelContext* raw, size_t index) {
  Tensor tensor;
  const OrtValue* value = nullptr;
  check(call(abi::GetInput{}, raw, index, &value), "input");
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

std::vector<Tensor> read_inputs(const OrtKernelContext* raw) {
  size_t count = 0;
  check(call(abi::GetInputCount{}, raw, &count), "input count");
  std::vector<Tensor> inputs;
  inputs.reserve(count);
  for (size_t index = 0; index < count; ++index) inputs.push_back(read_input(raw, index));
  return inputs;
}

// The contract of an operator, held before any of its arithmetic; what it cannot say, the operator checks itself.
void check_inputs(const Operator& op, const std::vector<Tensor>& inputs) {
  const std::vector<Port>& ports = op.definition.inputs;
  const bool variadic = ports.back().characteristic == abi::kVariadic;
  require(inputs.size() == ports.size() || (variadic && inputs.size() > ports.size()),
          "it has " + std::to_string(inputs.size()) + " inputs; expected " + std::to_string(ports.size()));
  Bindings bindings;
  for (size_t index = 0; index < ports.size(); ++index) {
    Dimensions shape;
    for (int64_t size : inputs[index].shape) shape.push_back({size, ""});
    require(op.inputs[index].match(shape, bindings), std::string(ports[index].name) + " has shape " +
                                                         text(inputs[index].shape) + "; expected " +
                                                         op.inputs[index].expectation(bindings));
  }
}

OrtStatus* compute(void* opaque, OrtKernelContext* raw) {
  const auto* kernel = static_cast<const Kernel*>(opaque);
  return guarded(kernel->op->definition.name, [&] {
    std::vector<Tensor> inputs = read_inputs(raw);
    check_inputs(*kernel->op, inputs);
    kernel->op->definition.compute(Context(raw, std::move(inputs), kernel->attributes));
  });
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

void write_dimensions(const OrtShapeInferContext* context, size_t index, const Port& output,
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
    Bindings bindings;
    for (size_t index = 0; index < std::min(count, definition(op).inputs.size()); ++index) {
      const Dimensions shape = read_dimensions(context, index);
      // The runtime gives an unknown shape as one of rank zero, so an empty one says nothing. What does not fit is
      // left to the run, which has a message for it.
      if (!shape.empty() && !self(op).inputs[index].match(shape, bindings)) return;
    }
    const std::vector<Port>& outputs = definition(op).outputs;
    for (size_t index = 0; index < outputs.size(); ++index) {
      // The runtime does not tell how many outputs the node has, and aborts on one too many: beyond the first,
      // only those that no node may leave out.
      if (index > 0 && outputs[index].characteristic != abi::kRequired) continue;
      const std::optional<Dimensions> dimensions = self(op).outputs[index].resolve(bindings);
      if (dimensions) write_dimensions(context, index, outputs[index], *dimensions);
    }
  });
}

void fill_table(abi::CustomOp& table) {
  table.version = abi::kApiVersion;
  table.GetName = [](const abi::CustomOp* op) { return definition(op).name; };
  table.GetExecutionProviderType = [](const abi::CustomOp*) -> const char* { return nullptr; };
  table.GetInputType = [](const abi::CustomOp* op, size_t i) -> int { return definition(op).inputs[i].type; };
  table.GetInputTypeCount = [](const abi::CustomOp* op) { return definition(op).inputs.size(); };
  table.GetOutputType = [](const abi::CustomOp* op, size_t i) -> int { return definition(op).outputs[i].type; };
  table.GetOutputTypeCount = [](const abi::CustomOp* op) { return definition(op).outputs.size(); };
  table.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  table.GetInputCharacteristic = [](const abi::CustomOp* op, size_t i) -> int {
    return definition(op).inputs[i].characteristic;
  };
  table.GetOutputCharacteristic = [](const abi::CustomOp* op, size_t i) -> int {
    return definition(op).outputs[i].characteristic;
  };
  table.GetInputMemoryType = [](const abi::CustomOp*, size_t) { return 0; };
  table.GetVariadicInputMinArity = [](const abi::CustomOp*) { return 1; };
  table.GetVariadicInputHomogeneity = [](const abi::CustomOp*) { return 1; };
  table.GetVariadicOutputMinArity = [](const abi::CustomOp*) { return 1; };
  table.GetVariadicOutputHomogeneity = [](const abi::CustomOp*) { return 1; };
  table.CreateKernelV2 = create_kernel;
  table.KernelComputeV2 = compute;
  table.InferOutputShapeFn = infer_shapes;
  table.GetStartVersion = [](const abi::CustomOp*) { return 1; };
  table.GetEndVersion = [](const abi::CustomOp*) { return INT32_MAX; };
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

Context::Context(OrtKernelContext* raw, std::vector<Tensor> inputs, const std::vector<double>& attributes)
    : raw_(raw), inputs_(std::move(inputs)), attributes_(attributes) {
  check(call(abi::GetOutputCount{}, raw, &output_count_), "output count");
#if defined(FUSELINE_OWN_THREADS)
  // A thread sanitizer knows threads that are started and joined; it cannot see into ONNX Runtime's pool.
  parallel_ = with_threads(2);
#else
  parallel_ = [raw](size_t count, const Task& task) {
    struct Shared {
      const Task& task;
      FirstError error;
    } shared{task, {}};
    const auto step = [](void* data, size_t index) {
      auto* shared = static_cast<Shared*>(data);
      shared->error.run(shared->task, index);
    };
    // As many batches as tasks: whoever is free takes the next. Fewer would be dealt out in advance, and a thread that
    // wakes late would hold up the others.
    check(call(abi::ParallelFor{}, raw, step, count, count, static_cast<void*>(&shared)), "parallel for");
    shared.error.rethrow();
  };
#endif
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

abi::Api runtime() { return g_api; }

OrtStatus* register_all(OrtSessionOptions* options, const abi::ApiBase* base) {
  static std::mutex mutex;
  static std::deque<Operator> operators;  // sessions keep pointers to these for as long as they live
  static OrtCustomOpDomain* domain = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (domain == nullptr) {
    g_api = base->GetApi(abi::kApiVersion);
    if (OrtStatus* status = call(abi::CreateCustomOpDomain{}, "fuseline", &domain)) return status;
    for (const Definition& definition : all_definitions()) {
      Operator& op = operators.emplace_back(definition);
      fill_table(op);
      if (definition.in_place.pairs != nullptr) {
        op.GetMayInplace = definition.in_place.pairs;
        op.ReleaseMayInplace = [](int* inputs, int* outputs) {
          delete[] inputs;
          delete[] outputs;
        };
      }
      if (OrtStatus* status = call(abi::CustomOpDomainAdd{}, domain, &op)) return status;
    }
  }
  return call(abi::AddCustomOpDomain{}, options, domain);
}

}  // namespace fuseline
