// The library's entry point for ONNX Runtime, and the list of everything it offers.
#include "ops/all.h"

namespace {

fuseline::Definitions all_definitions() {
  fuseline::Definitions all;
  for (const auto& family : {
           fuseline::optimizer_definitions(),
           fuseline::norm_definitions(),
           fuseline::gelu_definitions(),
           fuseline::embedding_definitions(),
           fuseline::cross_entropy_definitions(),
           fuseline::row_definitions(),
           fuseline::weight_gradient_definitions(),
           fuseline::attention_definitions(),
       })
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const fuseline::abi::ApiBase* base) {
  return fuseline::register_all(options, base, all_definitions());
}
