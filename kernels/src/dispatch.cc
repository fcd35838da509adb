// Chooses the instruction set once, when the library is first used.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "compute/kernels.h"

namespace fuseline {

namespace portable {
extern const Routines table;
}
#if defined(FUSELINE_X86)
namespace avx2 {
extern const Routines table;
}
namespace avx512 {
extern const Routines table;
void bf16_product_native(const Bf16Product&, int64_t begin, int64_t end);
}
#endif

namespace {

// The tables this processor can run, best first, ended by nullptr.
const Routines* const* supported() {
  static const Routines* tables[5];
  static const bool ready = [] {
    size_t count = 0;
#if defined(FUSELINE_X86)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      static const Routines with_bf16 = [] {
        Routines table = avx512::table;
        table.isa = "avx512bf16";
        table.bf16_product = avx512::bf16_product_native;
        return table;
      }();
      if (__builtin_cpu_supports("avx512bf16")) tables[count++] = &with_bf16;
      tables[count++] = &avx512::table;
    }
    if (has_avx2) tables[count++] = &avx2::table;
#endif
    tables[count++] = &portable::table;
    return true;
  }();
  (void)ready;
  return tables;
}

const Routines* named(const char* isa) {
  for (const Routines* const* table = supported(); *table != nullptr; ++table)
    if (std::strcmp((*table)->isa, isa) == 0) return *table;
  return nullptr;
}

std::atomic<const Routines*>& current() {
  static std::atomic<const Routines*> table = [] {
    const char* wanted = std::getenv("FUSELINE_ISA");
    const Routines* chosen = wanted == nullptr ? nullptr : named(wanted);
    return chosen == nullptr ? supported()[0] : chosen;
  }();
  return table;
}

}  // namespace

const Routines& routines() { return *current().load(std::memory_order_relaxed); }

}  // namespace fuseline

// The instruction set in use.
extern "C" __attribute__((visibility("default"))) const char* fuseline_isa() { return fuseline::routines().isa; }

// Switches to another one; 0 when this processor lacks it. For tests and measurements.
extern "C" __attribute__((visibility("default"))) int fuseline_use_isa(const char* isa) {
  const fuseline::Routines* table = fuseline::named(isa);
  if (table == nullptr) return 0;
  fuseline::current().store(table);
  return 1;
}
