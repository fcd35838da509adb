// The library's entry points: for ONNX Runtime, and for whoever wants to know what it offers.
#include "ops/all.h"

namespace fuseline {

const Definitions& all_definitions() {
  static const Definitions definitions = [] {
    Definitions all;
    for (const Definitions& family :
         {optimizer_definitions(), norm_definitions(), gelu_definitions(), embedding_definitions(),
          embedding_rows_definitions(), cross_entropy_definitions(), linear_loss_definitions(), row_definitions(),
          weight_gradient_definitions(), attention_definitions(), attention_rows_definitions(), linear_definitions()})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return definitions;
}

namespace {

const char* name_of(abi::ElementType type) {
  switch (type) {
    case abi::kFloat: return "float";
    case abi::kUint8: return "uint8";
    case abi::kInt8: return "int8";
    case abi::kInt64: return "int64";
    case abi::kBool: return "bool";
    case abi::kDouble: return "double";
    case abi::kBfloat16: return "bfloat16";
  }
  return "";
}

const char* name_of(abi::Characteristic characteristic) {
  switch (characteristic) {
    case abi::kRequired: return "required";
    case abi::kOptional: return "optional";
    case abi::kVariadic: return "variadic";
  }
  return "";
}

// One line each, fields separated by spaces: kind, then what there is to say about it. The shape comes last, since it
// may be empty.
void describe(std::string& text, const char* kind, const std::vector<Port>& ports) {
  for (const Port& port : ports)
    text += std::string(kind) + ' ' + port.name + ' ' + name_of(port.type) + ' ' + name_of(port.characteristic) + ' ' +
            port.shape + '\n';
}

std::string description() {
  std::string text;
  for (const Definition& definition : all_definitions()) {
    text += std::string("operator ") + definition.name + '\n';
    describe(text, "input", definition.inputs);
    describe(text, "output", definition.outputs);
    for (const Attribute& attribute : definition.attributes)
      text += std::string("attribute ") + attribute.name + ' ' + (attribute.integer ? "int " : "float ") +
              std::to_string(attribute.fallback) + '\n';
    if (definition.in_place.input >= 0) text += "in-place " + std::to_string(definition.in_place.input) + '\n';
  }
  return text;
}

}  // namespace
}  // namespace fuseline

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const fuseline::abi::ApiBase* base) {
  return fuseline::register_all(options, base);
}

// Every operator with its ports and attributes.
extern "C" __attribute__((visibility("default"))) const char* fuseline_operators() {
  static const std::string text = fuseline::description();
  return text.c_str();
}
