// The part of ONNX Runtime's C ABI that this library uses.
//
// The wheels carry no headers, and the ABI is append-only: OrtApi is a flat table of function pointers whose
// slots never move, so naming the slots in use is enough to load in every runtime since 1.18.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;
struct OrtEnv;
struct OrtMemoryInfo;

namespace fuseline::abi {

constexpr uint32_t kApiVersion = 18;

enum ElementType : int { kFloat = 1, kUint8 = 2, kInt8 = 3, kInt64 = 7, kBool = 9, kDouble = 11, kBfloat16 = 16 };
enum Characteristic : int { kRequired = 0, kOptional = 1, kVariadic = 2 };
enum ErrorCode : int { kFail = 1, kInvalidArgument = 2 };
enum LoggingLevel : int { kFatal = 4 };
enum AllocatorType : int { kDeviceAllocator = 0 };

using Api = void* const*;  // OrtApi, indexed by Slot

struct ApiBase {
  Api (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// One type per slot in use: its position in the table and its signature.
template <size_t Index, class Signature>
struct Slot {};

using CreateStatus = Slot<0, OrtStatus*(int, const char*)>;
using GetErrorMessage = Slot<2, const char*(const OrtStatus*)>;
using CreateEnv = Slot<3, OrtStatus*(int, const char*, OrtEnv**)>;
using CreateCustomOpDomain = Slot<26, OrtStatus*(const char*, OrtCustomOpDomain**)>;
using CustomOpDomainAdd = Slot<27, OrtStatus*(OrtCustomOpDomain*, const struct CustomOp*)>;
using AddCustomOpDomain = Slot<28, OrtStatus*(OrtSessionOptions*, OrtCustomOpDomain*)>;
using GetTensorMutableData = Slot<51, OrtStatus*(OrtValue*, void**)>;
using CreateTensorTypeAndShapeInfo = Slot<57, OrtStatus*(OrtTensorTypeAndShapeInfo**)>;
using SetTensorElementType = Slot<58, OrtStatus*(OrtTensorTypeAndShapeInfo*, int)>;
using SetDimensions = Slot<59, OrtStatus*(OrtTensorTypeAndShapeInfo*, const int64_t*, size_t)>;
using GetDimensionsCount = Slot<61, OrtStatus*(const OrtTensorTypeAndShapeInfo*, size_t*)>;
using GetDimensions = Slot<62, OrtStatus*(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t)>;
using GetSymbolicDimensions = Slot<63, OrtStatus*(const OrtTensorTypeAndShapeInfo*, const char**, size_t)>;
using GetTensorTypeAndShape = Slot<65, OrtStatus*(const OrtValue*, OrtTensorTypeAndShapeInfo**)>;
using CreateCpuMemoryInfo = Slot<69, OrtStatus*(int, int, OrtMemoryInfo**)>;
using GetAttributeFloat = Slot<85, OrtStatus*(const OrtKernelInfo*, const char*, float*)>;
using GetAttributeInt = Slot<86, OrtStatus*(const OrtKernelInfo*, const char*, int64_t*)>;
using GetInputCount = Slot<88, OrtStatus*(const OrtKernelContext*, size_t*)>;
using GetOutputCount = Slot<89, OrtStatus*(const OrtKernelContext*, size_t*)>;
using GetInput = Slot<90, OrtStatus*(const OrtKernelContext*, size_t, const OrtValue**)>;
using GetOutput = Slot<91, OrtStatus*(OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**)>;
using ReleaseStatus = Slot<93, void(OrtStatus*)>;
using ReleaseTensorTypeAndShapeInfo = Slot<99, void(OrtTensorTypeAndShapeInfo*)>;
using RegisterAllocator = Slot<176, OrtStatus*(OrtEnv*, struct Allocator*)>;
using InferGetInputCount = Slot<267, OrtStatus*(const OrtShapeInferContext*, size_t*)>;
using InferGetInput = Slot<268, OrtStatus*(const OrtShapeInferContext*, size_t, OrtTensorTypeAndShapeInfo**)>;
using InferSetOutput = Slot<270, OrtStatus*(const OrtShapeInferContext*, size_t, const OrtTensorTypeAndShapeInfo*)>;
using SetSymbolicDimensions = Slot<271, OrtStatus*(OrtTensorTypeAndShapeInfo*, const char**, size_t)>;
using ParallelFor =
    Slot<274, OrtStatus*(const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*)>;

template <size_t Index, class Result, class... Arguments>
Result call(Api api, Slot<Index, Result(Arguments...)>, std::common_type_t<Arguments>... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(api[Index])(arguments...);
}

// OrtAllocator: the member order is the ABI.
struct Allocator {
  uint32_t version;
  void* (*Alloc)(Allocator*, size_t);
  void (*Free)(Allocator*, void*);
  const OrtMemoryInfo* (*Info)(const Allocator*);
  void* (*Reserve)(Allocator*, size_t);
};

// OrtCustomOp: the member order is the ABI.
struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, Api, const OrtKernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const CustomOp*, size_t);
  int (*GetOutputCharacteristic)(const CustomOp*, size_t);
  int (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  OrtStatus* (*CreateKernelV2)(const CustomOp*, Api, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const CustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
  size_t (*GetMayInplace)(int**, int**);
  void (*ReleaseMayInplace)(int*, int*);
  size_t (*GetAliasMap)(int**, int**);
  void (*ReleaseAliasMap)(int*, int*);
};

}  // namespace fuseline::abi
